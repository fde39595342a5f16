"""Providers, as from an idem.toml, for the tests of look-ups, lists and cancels."""

import tomllib
from pathlib import Path
from typing import Any

from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.providers.http import HttpProvider

STRIPE = Path(__file__).with_name("lists_stripe.toml").read_text()

SQUARE = Path(__file__).with_name("lists_square.toml").read_text()


def provider(text: str, origin: str = "https://api.example", **changes: Any) -> HttpProvider:
    """The provider of a table; `changes` replace its members."""
    written = tomllib.loads(text.replace("ORIGIN", origin)) | changes
    made = ProviderSettings.model_validate(written).build("psp", {}, environment="test")
    assert isinstance(made, HttpProvider)
    return made

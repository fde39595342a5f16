"""Pages and examples do as they say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from idem.cli.commands import app
from idem.outbox.config import load
from idem.outbox.domain.contract import Response
from idem.outbox.providers.http import HttpProvider
from idem.outcomes import Pending

ROOT = Path(__file__).parents[2]
COMMANDS = get_command(app())


def unknown_options(file: Path) -> Iterator[str]:
    """Options in the commands that a file names which these commands have not."""
    for call, words in re.findall(r"\b(idem ((?:[a-z-]+ ?){1,3})[^`\n|;\"]*)", file.read_text()):
        command: Any = COMMANDS
        for word in words.split():
            if word not in getattr(command, "commands", ()):
                break
            command = command.commands[word]
        if hasattr(command, "commands"):
            continue
        known = {"--help"}.union(*((*each.opts, *each.secondary_opts) for each in command.params))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", call):
            if option not in known:
                yield f"{file.relative_to(ROOT)}: {option} in {call}"


@pytest.mark.parametrize(
    "place", ["cli", "deploy", "docs", "examples", "migrations", "outbox", "reconciler", "testing"]
)
def test_no_command_is_named_with_an_option_that_it_has_not(place: str) -> None:
    """The doctor said `dlq list --reason`, the examples `db upgrade --environment`."""
    files = [each for each in (ROOT / place).rglob("*") if each.suffix in (".md", ".py", ".toml", ".yaml", ".service")]
    assert files and [found for file in files for found in unknown_options(file)] == []


def test_the_bank_of_the_page_about_conformance_looks_at_credentials() -> None:
    """Two of the rules failed there: the bank serves whoever has none unless it is told."""
    page = (ROOT / "docs" / "adopt" / "provider-conformance.md").read_text()
    (settings,) = re.findall(r"echo '(.*)' > bank\.json\nidem bank run .*--settings bank\.json", page)
    assert json.loads(settings) == {"require_auth": True}


@pytest.mark.parametrize("name", ["idem.toml", "django_orders/idem.toml"])
def test_the_examples_wait_for_a_payment_that_needs_its_customer(name: str) -> None:
    """No rule was about it, so that it became unknown and at last a dead letter."""
    provider = load(ROOT / "examples" / name, {"BANK_TOKEN": "t"}).providers["bank"]
    assert isinstance(provider, HttpProvider)
    body = b'{"id": "pay_1", "status": "requires_action"}'
    outcome, _ = provider.classify(Response(201, {"content-type": "application/json"}, body))
    assert isinstance(outcome, Pending)

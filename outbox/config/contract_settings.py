"""`key` and `lookup` of a provider in idem.toml: what it promises about a key, and how it is asked about a call."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from idem.outbox.domain.contract import ReplayRule
from idem.outbox.providers.event_lookups import EventLookup
from idem.outbox.providers.lookups import ById, ByKey, ByReference, Lookup
from idem.outbox.values.settings_base import Duration, Section


class KeySettings(Section):
    """How the provider key travels, and what the provider promises about it."""

    carrier: Literal["header", "body", "none"] = "none"
    """What carries the provider key: "header", "body" or "none" (default: nothing is promised)."""
    name: str | None = None
    """Name of the header or body member, e.g. Idempotency-Key."""
    replay: ReplayRule = "none"
    """What a second send under the same key gets: "stored" (the first answer), "current" (the object as it is now),
    "success_only" (2xx are stored, errors are executed again) or "none" (default)."""
    retention: Duration = 0.0
    """Seconds for which the provider is sure to remember a key: its floor; default 0."""


class LookupSettings(Section):
    """Whether the provider can be asked, and how far its "nothing" is believed."""

    horizon: Duration = 0.0
    """Seconds after which a look-up is sure to see an effect; default 0s: at once."""
    agree: int = Field(default=2, ge=1)
    """Look-ups that must agree that there is nothing; default 2."""
    by_key: ByKey | None = None
    """How to ask by the provider key; default not possible."""
    by_reference: ByReference | None = None
    """How to ask by our reference, which is the provider key in the request; default not possible."""
    by_id: ById | None = None
    """How to ask by the provider's own id, once it is known; default not possible."""
    by_events: EventLookup | None = None
    """How to ask the provider's own list of events; default not possible."""

    @model_validator(mode="after")
    def _asks_about_this_row(self) -> LookupSettings:
        for way in self.ways():
            way.check()
        return self

    def ways(self) -> tuple[Lookup, ...]:
        """The ways to ask for the object that are said, best first: the provider's own id leaves no doubt."""
        return tuple(way for way in (self.by_id, self.by_key, self.by_reference) if way is not None)

"""`webhook` of a provider and of an account in idem.toml: how its events are verified and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field, field_validator

from idem.outbox import pointer
from idem.outbox.configuration.outcome_settings import Pointer, tokens
from idem.outbox.contract import Scheme, Webhook
from idem.outbox.providers.events import EventReader
from idem.outbox.providers.standard_webhooks import StandardWebhooks
from idem.outbox.section import Secret, Section

SCHEMES: Final[Mapping[str, Scheme]] = {"standard": StandardWebhooks()}

LONGEST_TYPE: Final = 100
"""Characters of the name of a type of events."""


class AccountWebhookSettings(Section):
    """What the events of one account are signed with: an event touches only rows of the account that signed it."""

    secrets: list[Secret] = Field(
        default_factory=list,
        description="Where the account's signing secrets are; default none, and then its events are refused. Several "
        "are active side by side, so that one can be changed without a gap.",
    )


class WebhookSettings(Section):
    """Signed events of a provider. Every pointer begins at the top of the event's body."""

    scheme: Literal["standard"] = Field(
        default="standard", description='How events are signed: "standard" (default) is Standard Webhooks, HMAC-SHA256.'
    )
    secrets: list[Secret] = Field(
        default_factory=list,
        description="The same as accounts.<name>.webhook.secrets, for a provider with one account; default none.",
    )
    event_id: Pointer | None = Field(
        default=None,
        description="JSON pointer to what tells one event from another; default none: the header of the scheme "
        "(webhook-id), which is the same at each delivery.",
    )
    type: Pointer = Field(default="/type", description='JSON pointer to the type of the event; default "/type".')
    types: list[str] = Field(
        default_factory=list,
        description='Types that are read, a star at the end for all that begin so, as "payment.*"; default all. The '
        "others are stored and change nothing.",
    )
    object: Pointer = Field(
        default="/data", description='JSON pointer to the object that the outcome rules read; default "/data".'
    )
    key: Pointer | None = Field(
        default=None,
        description='JSON pointer to the provider key, as "/data/reference"; default none: an event is then matched '
        "by the provider's reference alone, which an unknown call may not have yet.",
    )
    reference: Pointer | None = Field(
        default=None,
        description="JSON pointer to the provider's reference; default where `object` says, inside the object.",
    )

    @field_validator("types")
    @classmethod
    def _are_types(cls, value: list[str]) -> list[str]:
        for each in value:
            if not 1 <= len(each) <= LONGEST_TYPE or "*" in each[:-1]:
                raise ValueError(f"{each!r} is no type of events: write its name, or its beginning and one star")
        return value

    def build(self, secrets: Mapping[str, tuple[bytes, ...]]) -> Webhook:
        """How events are verified; `secrets` are the parsed ones of each account."""
        return Webhook(SCHEMES[self.scheme], dict(secrets))

    def reader(self, inside: str | None) -> EventReader:
        """Where things stand in an event; `inside` is the pointer to the reference inside the object."""
        shown = pointer.parse(self.object)
        reference = tokens(self.reference)
        if reference is None and inside is not None:
            reference = (*shown, *pointer.parse(inside))
        return EventReader(
            object=shown,
            id=tokens(self.event_id),
            type=tokens(self.type),
            types=tuple(self.types),
            key=tokens(self.key),
            reference=reference,
        )

"""`webhook` of a provider and of an account in idem.toml: how its events are verified, read and believed."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from idem.outbox.domain.contract import EventRule
from idem.outbox.domain.webhook import Webhook, WebhookReply
from idem.outbox.providers.outcome_rules import conditions
from idem.outbox.providers.scheme_settings import SchemeSettings
from idem.outbox.providers.schemes.tries import MOST_SECRETS
from idem.outbox.values.json_pointer import Tokens
from idem.outbox.values.settings_base import Duration, Pointer, Pointers, Secret, Section

RULE: Final = EventRule()
"""The defaults of a contract are written once, in `idem.outbox.domain.contract`."""

LONGEST_TYPE: Final = 100
"""Characters of the name of a type of events."""


def checked_url(value: str) -> str:
    """An endpoint's address, unchanged. Raises ValueError."""
    try:
        parts = urlsplit(value)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or not value.isascii() or " " in value:
        raise ValueError(f"{value!r} is not an address (expected e.g. https://hooks.shop.example/webhooks/square)")
    return value


class AccountWebhookSettings(Section):
    """What the events of one account are signed with: an event touches only rows of the account that signed it."""

    secrets: list[Secret] = Field(default_factory=list, max_length=MOST_SECRETS)
    """Where the signing secrets of an account are, 10 at most; for a provider with one account also at `webhook`.
    Default none, and then its events are refused. Several are active side by side, so that one can be changed without a
    gap."""
    url: Annotated[str, AfterValidator(checked_url)] | None = None
    """Address of the endpoint as the provider knows it, letter for letter; at `webhook` with {account} for the name of
    the account. Needed where the provider signs it (square, {url} in signed); default none."""


class WebhookSettings(AccountWebhookSettings, SchemeSettings):
    """Signed events of a provider. Every pointer begins at the top of the body; for a batch all but `events` and `when`
    begin at the item, or at what `event_path` finds in it.
    """

    events: Pointer | None = None
    """JSON pointer to the list of events, for a provider that sends batches; default none: a body is one event (adyen:
    "/notificationItems", gocardless: "/events")."""
    event_path: Pointer | None = None
    """JSON pointer from an item of a batch to the event in it; default none: the item is the event (adyen:
    "/NotificationRequestItem")."""
    when: dict[str, Any] = Field(default_factory=dict)
    """What members of the body must be, e.g. {"/livemode" = true}; default nothing. An event for which that is not so
    is stored and changes nothing, e.g. a test event at the address of live ones."""
    event_id: Pointers = ()
    """JSON pointer to what tells one event from another, or a list of those that do so together; default what the
    scheme has for it (standard: webhook-id; hmac-sha256: id_header, else a digest of the body; stripe and gocardless:
    "/id"; square: "/event_id"; adyen: event code, PSP reference and success)."""
    type: Pointer | None = None
    """JSON pointer to the type of the event; default "/type" (adyen: "/eventCode", gocardless: "/action")."""
    types: list[str] = Field(default_factory=list)
    """Types that are read, a star at the end for all that begin so, e.g. "payment.*"; default all. The others are
    stored and change nothing."""
    object: Pointer | None = None
    """JSON pointer to the object that the outcome rules read; default "/data" (stripe: "/data/object", adyen and
    gocardless: the event itself)."""
    key: Pointers = ()
    """JSON pointer to the provider key, e.g. "/data/reference", or a list, best first; default where `deployment_tag`
    says, else none: an event is then matched by the provider's reference alone, which an unknown call may not have
    yet."""
    reference: Pointer | None = None
    """JSON pointer to the provider's reference; default where `object` says, inside the object."""
    fetch: bool = RULE.fetch
    """Whether the object is looked up before an event about it is believed; default false. For events that do not show
    the object, or not how it is now."""
    redelivery: Duration = RULE.redelivery
    """Seconds for which the provider may send an event again; default 3d, as Stripe does. Events are kept for longer
    (sweeper.webhook_retention)."""
    unmatched: Literal["operator", "ignore"] = "operator"
    """What becomes of an event that is about no call of ours: "operator" (default: a dead letter after a day, in which
    it is tried against calls that are still to come) or "ignore", where the account serves others too."""
    reply: str | None = None
    """Body of the reply (200, text/plain) to a delivery that was taken, for a provider that demands a certain text;
    default a JSON object that says which event it was and what was done (adyen: [accepted])."""

    @field_validator("types")
    @classmethod
    def _are_types(cls, value: list[str]) -> list[str]:
        for each in value:
            if not 1 <= len(each) <= LONGEST_TYPE or "*" in each[:-1]:
                raise ValueError(f"{each!r} is not a type of events: write its name, or its beginning and one star")
        return value

    @field_validator("when")
    @classmethod
    def _are_conditions(cls, value: dict[str, Any]) -> dict[str, Any]:
        conditions(value)
        return value

    @field_validator("event_id", mode="before")
    @classmethod
    def _is_one_or_several(cls, value: Any) -> Any:
        if value == []:
            raise ValueError("an empty list tells no event from another: leave it out")
        return value

    @property
    def id_parts(self) -> tuple[Tokens, ...]:
        """Where the parts of an event's id are; none: the headers have it."""
        return self.event_id or self.shape.event_id

    @property
    def batch(self) -> Tokens | None:
        """Where a batch's list is; None: a body is one event."""
        return self.shape.events if self.events is None else self.events

    @property
    def begins(self) -> Tokens:
        """Where in an item of a batch the event is."""
        return self.shape.event_path if self.event_path is None else self.event_path

    @property
    def shows(self) -> Tokens:
        """Where in an event its object is."""
        return self.shape.object if self.object is None else self.object

    @property
    def type_at(self) -> Tokens:
        """Where in an event its type is."""
        return self.shape.type if self.type is None else self.type

    def reference_at(self, in_object: Tokens | None) -> Tokens | None:
        """Where in an event the provider's reference is; `in_object`: where it is in the object."""
        in_event = None if in_object is None else (*self.shows, *in_object)
        return in_event if self.reference is None else self.reference

    def build(self, secrets: Mapping[str, tuple[bytes, ...]], urls: Mapping[str, str]) -> Webhook:
        """How events are verified; `secrets` are the parsed ones of each account, `urls` the written addresses."""
        reply = self.shape.reply if self.reply is None else WebhookReply(body=self.reply.encode())
        return Webhook(self.verifier(), dict(secrets), dict(urls), reply)

    def rule(self) -> EventRule:
        """What the contract says about events."""
        return EventRule(self.fetch, self.redelivery, None if self.unmatched == "ignore" else RULE.horizon)

    def address(self, account: str, own: AccountWebhookSettings | None) -> str | None:
        """The endpoint of an account as the provider knows it."""
        if own is not None and own.url is not None:
            return own.url
        return None if self.url is None else self.url.replace("{account}", account)

"""What `webhook` of a provider says about signatures: the scheme, and what belongs to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import Field, field_validator

from idem.outbox.domain.webhook import Scheme, WebhookReply
from idem.outbox.providers.request_parts import HeaderName
from idem.outbox.providers.schemes.adyen import ITEM, SIGNED, AdyenSignatures
from idem.outbox.providers.schemes.deliveries import SignatureEncoding
from idem.outbox.providers.schemes.gocardless import GoCardlessSignatures
from idem.outbox.providers.schemes.hmac_sha256 import HmacSha256, SignaturePlace, parse_template
from idem.outbox.providers.schemes.square import SquareSignatures
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.providers.schemes.stripe import StripeSignatures
from idem.outbox.values.json_pointer import Tokens
from idem.outbox.values.settings_base import Section

SchemeName: TypeAlias = Literal["standard", "stripe", "hmac-sha256", "square", "adyen", "gocardless"]

OWN: Final[Mapping[SchemeName, frozenset[str]]] = {
    "hmac-sha256": frozenset({"header", "prefix", "encoding", "signed", "timestamp_header", "id_header", "url"}),
    "square": frozenset({"url"}),
}
"""The settings that a scheme leaves open: each other one has its value from the scheme."""


USUAL_REPLY: Final = WebhookReply()

WITHOUT_SETTINGS: Final[Mapping[SchemeName, Callable[[], Scheme]]] = {
    "standard": StandardWebhooks,
    "stripe": StripeSignatures,
    "square": SquareSignatures,
    "adyen": AdyenSignatures,
    "gocardless": GoCardlessSignatures,
}


@dataclass(frozen=True, slots=True)
class EventShape:
    """How the events of a scheme's provider look, where nothing else is written. `signed`:
    all of an item that is signed, where that is not the whole delivery."""

    event_id: tuple[Tokens, ...] = ()
    type: Tokens = ("type",)
    object: Tokens = ("data",)
    events: Tokens | None = None
    event_path: Tokens = ()
    signed: tuple[Tokens, ...] = ()
    reply: WebhookReply = USUAL_REPLY


SHAPES: Final[Mapping[SchemeName, EventShape]] = {
    "stripe": EventShape(event_id=(("id",),), object=("data", "object")),
    "square": EventShape(event_id=(("event_id",),)),
    # What is not signed tells nothing, eventDate neither.
    "adyen": EventShape(
        event_id=(("eventCode",), ("pspReference",), ("success",)),
        type=("eventCode",),
        object=(),
        events=("notificationItems",),
        event_path=(ITEM,),
        signed=tuple((ITEM, *each) for each in SIGNED),
        reply=WebhookReply(200, b"[accepted]"),
    ),
    "gocardless": EventShape(event_id=(("id",),), type=("action",), object=(), events=("events",)),
}


class SchemeSettings(Section):
    """How events are signed."""

    scheme: SchemeName = "standard"
    """How events are signed: "standard" (default: Standard Webhooks, HMAC-SHA256 and ed25519), "stripe", "hmac-sha256"
    (a header, described by the settings below: GitHub, Checkout.com, Shopify, Modern Treasury), "square", "adyen" or
    "gocardless". It also says where things stand in the provider's events."""
    header: HeaderName | None = None
    """Header with the signature, e.g. "X-Hub-Signature-256"; hmac-sha256 only, no default."""
    prefix: str = Field(default="", pattern=r"^[!-~]*$")
    """What stands before the signature in its header, e.g. "sha256="; hmac-sha256 only, default none."""
    encoding: SignatureEncoding = "hex"
    """How the signature is written: "hex" (default) or "base64"; hmac-sha256 only."""
    signed: str = "{body}"
    """What is signed, made of {body}, {timestamp}, {id}, {url} and other text, as "{timestamp}.{body}"; hmac-sha256
    only, default "{body}"."""
    timestamp_header: HeaderName | None = None
    """Header with the time of sending in whole seconds since 1970; hmac-sha256 only, default none: a delivery is then
    known by its event's id alone, for sweeper.webhook_retention. A time of sending may differ from our clock by 5
    minutes: a genuine event outside of it is stored, and the provider is asked what it says."""
    id_header: HeaderName | None = None
    """Header that tells one event from another and is the same at each delivery; hmac-sha256 only, default none:
    event_id does, or else a digest of the body."""

    @field_validator("signed")
    @classmethod
    def _is_template(cls, value: str) -> str:
        parse_template(value)
        return value

    @property
    def shape(self) -> EventShape:
        return SHAPES.get(self.scheme, EventShape())

    @property
    def timed(self) -> bool:
        """Whether a delivery says when it was sent, so that one which was recorded is of no use later."""
        return self.scheme in ("standard", "stripe") or (
            self.scheme == "hmac-sha256" and SignaturePlace.TIMESTAMP in parse_template(self.signed)
        )

    @property
    def signs_url(self) -> bool:
        return self.scheme == "square" or (
            self.scheme == "hmac-sha256" and SignaturePlace.URL in parse_template(self.signed)
        )

    @property
    def names_event(self) -> bool:
        """Whether the headers tell one delivered event from another (a batch has one set of headers for all)."""
        return self.scheme in ("standard", "hmac-sha256")

    def verifier(self) -> Scheme:
        """The scheme. What is missing verifies nothing; `idem.outbox.config.webhook_checks` says so."""
        if self.scheme != "hmac-sha256":
            return WITHOUT_SETTINGS[self.scheme]()
        return HmacSha256(
            header=_lower(self.header) or b"",
            prefix=self.prefix.encode(),
            encoding=self.encoding,
            signed=parse_template(self.signed),
            timestamp_header=_lower(self.timestamp_header),
            id_header=_lower(self.id_header),
        )


def _lower(name: str | None) -> bytes | None:
    return None if name is None else name.lower().encode()

"""HMAC-SHA256 in a header, as most providers sign; header, prefix, encoding and the signed string are settings.

| provider | header | prefix | encoding | signed | other |
| --- | --- | --- | --- | --- | --- |
| GitHub | X-Hub-Signature-256 | `sha256=` | hex | `{body}` | |
| Checkout.com | Cko-Signature | | hex | `{body}` | event id in the body, `/id` |
| Shopify | X-Shopify-Hmac-Sha256 | | base64 | `{body}` | |
| Modern Treasury | X-Signature | | hex | `{body}` | |
| Slack | X-Slack-Signature | `v0=` | hex | `v0:{timestamp}:{body}` | X-Slack-Request-Timestamp |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from idem.outbox.domain.webhook import Signed, Unverified
from idem.outbox.providers.schemes.deliveries import (
    TOLERANCE,
    HmacClaim,
    SignatureEncoding,
    check_age,
    header,
    plain,
    readable,
    seconds,
)


class SignaturePlace(StrEnum):
    """What stands in the signed string in place of `{…}`."""

    BODY = "body"
    TIMESTAMP = "timestamp"
    ID = "id"
    URL = "url"


SignedTemplate: TypeAlias = tuple[bytes | SignaturePlace, ...]

BODY_ALONE: Final[SignedTemplate] = (SignaturePlace.BODY,)


def parse_template(written: str) -> SignedTemplate:
    """The parts of a signed string as it is written, `{timestamp}.{body}`. Raises ValueError."""
    parts: list[bytes | SignaturePlace] = []
    for number, part in enumerate(re.split(r"\{([a-z]+)\}", written)):
        if number % 2:
            if part not in list(SignaturePlace):
                known = ", ".join(f"{{{place}}}" for place in SignaturePlace)
                raise ValueError(f"there is no {{{part}}}; known are {known}")
            parts.append(SignaturePlace(part))
        elif "{" in part or "}" in part:
            raise ValueError(f"a brace stands alone in {written!r}")
        elif part:
            parts.append(part.encode())
    if parts.count(SignaturePlace.BODY) != 1:
        raise ValueError("the signed string holds {body} once: what is not signed proves nothing")
    if any(parts.count(place) > 1 for place in SignaturePlace):
        raise ValueError("each part stands in the signed string once")
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class HmacSha256:
    """The scheme. Names of headers are in lower case.

    `timestamp_header`: holds whole POSIX seconds, which may differ from our clock by `tolerance`. `id_header`: tells
    one event from another; without it, what was signed does.
    """

    header: bytes
    prefix: bytes = b""
    encoding: SignatureEncoding = "hex"
    signed: SignedTemplate = BODY_ALONE
    timestamp_header: bytes | None = None
    tolerance: float = TOLERANCE
    id_header: bytes | None = None

    def parse_secret(self, text: str) -> bytes:
        """The key: the text as it stands. Raises ValueError, which never contains it."""
        if self.prefix and text.encode().startswith(self.prefix):
            raise ValueError(f"it begins with {self.prefix.decode()}, as a signature does: it is none of the secret")
        return plain(text)

    def read(self, delivery: Signed) -> SettingsClaim:
        """Raises Unverified: `missing`, `malformed` or `timestamp`."""
        value = header(delivery.headers, self.header)
        if not value.startswith(self.prefix):
            raise Unverified("malformed", f"the signature does not begin with {self.prefix.decode()}")
        given = value[len(self.prefix) :]
        parts = {SignaturePlace.BODY: delivery.body}
        if self.encoding == "hex":
            given = given.lower()
        sent: int | None = None
        if self.timestamp_header is not None:
            parts[SignaturePlace.TIMESTAMP] = header(delivery.headers, self.timestamp_header)
            sent = seconds(parts[SignaturePlace.TIMESTAMP], self.timestamp_header.decode())
        if self.id_header is not None:
            parts[SignaturePlace.ID] = header(delivery.headers, self.id_header)
        return SettingsClaim(self, given, parts, sent)


@dataclass(frozen=True, slots=True)
class SettingsClaim:
    """A delivery as the settings of the scheme read it."""

    scheme: HmacSha256
    signature: bytes
    parts: dict[SignaturePlace, bytes]
    sent: int | None

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> str:
        """The id in its header, else one made of the body. Raises Unverified: `not_configured` or `signature`, and
        OutOfTime."""
        scheme = self.scheme
        parts = self.parts if url is None else {**self.parts, SignaturePlace.URL: url.encode()}
        if any(isinstance(part, SignaturePlace) and part not in parts for part in scheme.signed):
            raise Unverified("not_configured", "the configuration lacks what this provider signs beside the body")
        signed = b"".join(parts[part] if isinstance(part, SignaturePlace) else part for part in scheme.signed)
        HmacClaim(signed, (self.signature,), scheme.encoding).verify(secrets, now, url)
        if scheme.id_header is not None:
            event_id = readable(parts[SignaturePlace.ID], scheme.id_header.decode())
        else:
            event_id = "sha256:" + hashlib.sha256(parts[SignaturePlace.BODY]).hexdigest()
        if self.sent is not None and scheme.timestamp_header is not None:
            # Under an id that is not signed, one recorded delivery makes any number of events.
            signed_id = scheme.id_header is None or SignaturePlace.ID in scheme.signed
            name = scheme.timestamp_header.decode()
            check_age(self.sent, now, scheme.tolerance, name, event_id if signed_id else None)
        return event_id

"""The scheme of Square: HMAC-SHA256 in base64 over the notification URL and the body, in one string.

The URL is the one that the subscription was made with, letter for letter: never what a request says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from idem.outbox.domain.webhook import Signed, Unverified
from idem.outbox.providers.schemes.deliveries import HmacClaim, header, plain

NAME: Final = b"x-square-hmacsha256-signature"


class SquareSignatures:
    """The scheme; it has no state."""

    def parse_secret(self, text: str) -> bytes:
        """The signature key of a subscription, as it stands. Raises ValueError, which never contains it."""
        if text.startswith(("EAAA", "sq0atp-")):
            raise ValueError("it looks like an access token; the signature key stands at the webhook subscription")
        return plain(text)

    def read(self, delivery: Signed) -> UrlClaim:
        """Raises Unverified: `missing` or `malformed`."""
        given = header(delivery.headers, NAME)
        if not delivery.body:
            raise Unverified("malformed", "the body is empty")
        return UrlClaim(delivery.body, given)


@dataclass(frozen=True, slots=True)
class UrlClaim:
    """A body and its signature; the address of the endpoint is signed before the body."""

    body: bytes
    signature: bytes

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> None:
        """The id is in the body. Raises Unverified: `not_configured` or `signature`."""
        if url is None:
            raise Unverified("not_configured", "the notification URL, which Square signs, is not configured")
        HmacClaim(url.encode() + self.body, (self.signature,), "base64").verify(secrets, now, url)

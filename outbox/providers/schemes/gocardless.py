"""The scheme of GoCardless: `Webhook-Signature`, HMAC-SHA256 in hex over the body, which holds a batch of events."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from idem.outbox.domain.webhook import Signed
from idem.outbox.providers.schemes.deliveries import fits, header, nothing_fits, plain

NAME: Final = b"webhook-signature"


class GoCardlessSignatures:
    """The scheme; it has no state."""

    def parse_secret(self, text: str) -> bytes:
        """The secret of a webhook endpoint, as it stands. Raises ValueError, which never contains it."""
        if text.startswith(("live_", "sandbox_")):
            raise ValueError("it looks like an access token; the secret stands at the webhook endpoint")
        return plain(text)

    def read(self, delivery: Signed) -> _GoCardlessDelivery:
        """Raises Unverified: `missing` or `malformed`."""
        return _GoCardlessDelivery(delivery.body, header(delivery.headers, NAME))


@dataclass(frozen=True, slots=True)
class _GoCardlessDelivery:
    body: bytes
    signature: bytes

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> None:
        """The ids are in the body. Raises Unverified: `signature`."""
        wanted = [hmac.digest(secret, self.body, hashlib.sha256).hex().encode() for secret in secrets]
        if not fits(wanted, (self.signature,)):
            raise nothing_fits()

"""The scheme of GoCardless: `Webhook-Signature`, HMAC-SHA256 in hex over the body, which holds a batch of events."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from idem.outbox.schemes.deliveries import fits, header, nothing_fits, plain
from idem.outbox.webhook import Signed

NAME: Final = b"webhook-signature"


class GoCardlessSignatures:
    """The scheme; it has no state."""

    def parse_secret(self, text: str) -> bytes:
        """The secret of a webhook endpoint, as it stands. Raises ValueError, which never contains it."""
        if text.startswith(("live_", "sandbox_")):
            raise ValueError("it looks like an access token; the secret stands at the webhook endpoint")
        return plain(text)

    def verify(self, delivery: Signed, secrets: Sequence[bytes], now: float) -> None:
        """The ids are in the body. Raises Unverified: `missing`, `malformed` or `signature`."""
        given = header(delivery.headers, NAME)
        wanted = [hmac.digest(secret, delivery.body, hashlib.sha256).hex().encode() for secret in secrets]
        if not fits(wanted, (given,)):
            raise nothing_fits()

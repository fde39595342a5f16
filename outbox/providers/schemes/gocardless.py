"""The scheme of GoCardless: `Webhook-Signature`, HMAC-SHA256 in hex over the body, which holds a batch of events."""

from typing import Final

from idem.outbox.domain.webhook import Signed
from idem.outbox.providers.schemes.deliveries import HmacClaim, header, plain

NAME: Final = b"webhook-signature"


class GoCardlessSignatures:
    """The scheme; it has no state."""

    def parse_secret(self, text: str) -> bytes:
        """The secret of a webhook endpoint, as it stands. Raises ValueError, which never contains it."""
        if text.startswith(("live_", "sandbox_")):
            raise ValueError("it looks like an access token; the secret stands at the webhook endpoint")
        return plain(text)

    def read(self, delivery: Signed) -> HmacClaim:
        """Raises Unverified: `missing` or `malformed`."""
        return HmacClaim(delivery.body, (header(delivery.headers, NAME),))

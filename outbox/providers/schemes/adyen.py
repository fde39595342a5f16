"""The scheme of Adyen's standard webhooks: a signature inside each item of the batch, over eight of its values.

The values are joined by colons and, as in all official libraries, nothing is escaped (that is the rule of the older
payment pages alone). So a colon could move from one value into the next under the same signature; it is allowed only
in the merchant's own reference, which leaves one reading. Nothing else in an item is signed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from idem.outbox.domain.webhook import Signed, Unverified
from idem.outbox.providers import response
from idem.outbox.providers.schemes.deliveries import HmacClaim
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import Tokens

KEY: Final = re.compile(r"(?:[0-9A-Fa-f]{2}){16,64}")

LIST: Final = "notificationItems"
ITEM: Final = "NotificationRequestItem"
OWN: Final = "merchantReference"

SIGNED: Final[tuple[Tokens, ...]] = (
    ("pspReference",),
    ("originalReference",),
    ("merchantAccountCode",),
    (OWN,),
    ("amount", "value"),
    ("amount", "currency"),
    ("eventCode",),
    ("success",),
)
"""In this order, inside an item."""


class AdyenSignatures:
    """The scheme; it has no state."""

    def parse_secret(self, text: str) -> bytes:
        """The key of hex digits. Raises ValueError, which never contains it."""
        if not KEY.fullmatch(text):
            raise ValueError("an HMAC key of Adyen is 64 hex digits, as the Customer Area shows it once")
        return bytes.fromhex(text)

    def read(self, delivery: Signed) -> BatchClaim:
        """The body is parsed here, once. Raises Unverified: `malformed` or `missing`."""
        content = response.read_event(delivery.body)
        items = content.get(LIST) if isinstance(content, dict) else None
        if not isinstance(items, list) or not items:
            raise Unverified("malformed", f"the body has no {LIST}")
        return BatchClaim(_signed(items[0]), items[1:])


@dataclass(frozen=True, slots=True)
class BatchClaim:
    """What the first item signs, with its signature; the other items are read only where that signature fits."""

    first: HmacClaim
    others: list[Any] = field(repr=False)

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> None:
        """The ids are in the body; one item that is not signed refuses all. Raises Unverified."""
        self.first.verify(secrets, now, url)
        for each in self.others:
            _signed(each).verify(secrets, now, url)


def _signed(element: Any) -> HmacClaim:
    """What an element of the list signs, and its signature. Raises Unverified."""
    item = element.get(ITEM) if isinstance(element, dict) else None
    if not isinstance(item, dict):
        raise Unverified("malformed", f"an item has no {ITEM}")
    additional = item.get("additionalData")
    signature = additional.get("hmacSignature") if isinstance(additional, dict) else None
    if not isinstance(signature, str) or not signature:
        raise Unverified("missing", "additionalData.hmacSignature is missing")
    words = [_word(tokens, item) for tokens in SIGNED]
    try:
        return HmacClaim(":".join(words).encode(), (signature.encode(),), "base64")
    except UnicodeEncodeError:
        raise Unverified("malformed", "an item holds text that is none") from None


def _word(tokens: Tokens, item: dict[str, Any]) -> str:
    # What an amount lacks is missing; elsewhere what is not there is signed as nothing.
    value = json_pointer.resolve({"originalReference": "", **item}, tokens)
    if tokens == ("amount", "value"):
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    elif isinstance(value, str) and (tokens == (OWN,) or ":" not in value):
        return value
    raise Unverified("malformed", f"{'.'.join(tokens)} is not as Adyen writes it")

"""The scheme of Standard Webhooks (https://www.standardwebhooks.com), symmetric part: HMAC-SHA256, version `v1`.

What is signed is `id.timestamp.body`, bytes as they came. A header may hold several signatures and an account several
secrets: that is how secrets are changed without a gap.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final

from idem.outbox.contract import Headers, Unverified

PREFIX: Final = "whsec_"
LEAST, MOST = 24, 64
"""Bytes of a secret's key, as the specification has it."""

TOLERANCE: Final = 300
"""Seconds between a delivery's time stamp and its receipt, in either direction: what two clocks may differ by."""

SECONDS: Final = re.compile(rb"[1-9][0-9]{0,10}")
"""Whole seconds and nothing else: no sign, no fraction, no exponent, and no milliseconds."""

NAMES: Final = (b"webhook-id", b"webhook-timestamp", b"webhook-signature")


class StandardWebhooks:
    """The scheme; it has no state."""

    def parse_secret(self, text: str) -> bytes:
        """The key of `whsec_…`. Raises ValueError, which never contains the secret."""
        if not text.startswith(PREFIX):
            kind = text.partition("_")[0]
            other = f", not with {kind}_" if kind in ("whpk", "whsk") else ""
            raise ValueError(f"a signing secret of Standard Webhooks begins with {PREFIX}{other}")
        encoded = text.removeprefix(PREFIX)
        try:
            # Some providers leave out the padding, and the official libraries take that.
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except binascii.Error:
            raise ValueError(f"what follows {PREFIX} is no base64") from None
        if not LEAST <= len(key) <= MOST:
            raise ValueError(f"its key has {len(key)} bytes; Standard Webhooks wants {LEAST} to {MOST}")
        return key

    def verify(self, headers: Headers, body: bytes, secrets: Sequence[bytes], now: float) -> str:
        """`webhook-id`. Raises Unverified: `missing`, `malformed`, `timestamp` or `signature`."""
        id, timestamp, signatures = (_one(headers, name) for name in NAMES)
        if not SECONDS.fullmatch(timestamp):
            raise Unverified("timestamp", "webhook-timestamp is no whole number of seconds")
        if abs(now - int(timestamp)) > TOLERANCE:
            raise Unverified("timestamp", f"webhook-timestamp is more than {TOLERANCE} seconds away from our clock")
        given = _signatures(signatures)
        signed = b".".join((id, timestamp, body))
        fits = False
        for secret in secrets:
            wanted = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256))
            for signature in given:
                fits |= hmac.compare_digest(wanted, signature)
        if not fits:
            raise Unverified("signature", "no signature fits an active secret")
        try:
            return id.decode("utf-8")
        except UnicodeDecodeError:
            # Read by another rule it could be the id of another event, which would then be a duplicate.
            raise Unverified("malformed", "webhook-id is not UTF-8") from None


def _one(headers: Headers, name: bytes) -> bytes:
    found = [value for each, value in headers if each.lower() == name]
    if len(found) > 1:
        raise Unverified("malformed", f"{name.decode()} was sent more than once")
    if not found or not found[0]:
        raise Unverified("missing", f"{name.decode()} is missing")
    return found[0]


def _signatures(value: bytes) -> list[bytes]:
    """The signatures of version 1 in a header. Other versions are other algorithms, and not looked at."""
    items = [item.split(b",") for item in value.split(b" ")]
    if any(len(item) != 2 for item in items):
        raise Unverified("malformed", "webhook-signature is no list of version,signature")
    return [signature for version, signature in items if version == b"v1"]

"""The scheme of Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 (`v1`) and ed25519 (`v1a`).

What is signed is `id.timestamp.body`, bytes as they came. A header may hold several signatures and an account several
secrets, of both kinds: that is how secrets are changed without a gap.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from idem.outbox.domain.webhook import Signed, Unverified
from idem.outbox.providers.schemes import ed25519
from idem.outbox.providers.schemes.deliveries import (
    TOLERANCE,
    check_age,
    check_few,
    fits,
    header,
    nothing_fits,
    readable,
    seconds,
    signatures,
)
from idem.outbox.providers.schemes.ed25519 import PublicKey

SECRET: Final = "whsec_"
PUBLIC: Final = "whpk_"
LEAST, MOST = 24, 64
"""Bytes of a secret's key, as the specification has it."""

MOST_BY_KEY: Final = 3
"""Signatures of ed25519 in one header: each is checked under each public key, and a key that is being changed makes
two."""

NAMES: Final = (b"webhook-id", b"webhook-timestamp", b"webhook-signature")


@dataclass(frozen=True, slots=True)
class StandardWebhooks:
    """The scheme. `tolerance`: seconds by which a time stamp may differ from our clock."""

    tolerance: float = TOLERANCE

    def parse_secret(self, text: str) -> bytes:
        """The key of `whsec_…`, or the public one of `whpk_…`. Raises ValueError, which never contains the secret."""
        for prefix in (SECRET, PUBLIC):
            if text.startswith(prefix):
                break
        else:
            kind = text.partition("_")[0]
            other = ", not with whsk_: that is the private key, which the provider keeps" if kind == "whsk" else ""
            raise ValueError(f"a signing secret of Standard Webhooks begins with {SECRET} or {PUBLIC}{other}")
        encoded = text.removeprefix(prefix)
        try:
            # Some providers leave out the padding, and the official libraries take that.
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except ValueError:
            raise ValueError(f"what follows {prefix} is not base64") from None
        if prefix == PUBLIC:
            return ed25519.public_key(key)
        if not LEAST <= len(key) <= MOST:
            raise ValueError(f"its key has {len(key)} bytes; Standard Webhooks wants {LEAST} to {MOST}")
        return key

    def read(self, delivery: Signed) -> MixedClaim:
        """Raises Unverified: `missing`, `malformed` or `timestamp`."""
        id, timestamp, listed = (header(delivery.headers, name) for name in NAMES)
        sent = seconds(timestamp, "webhook-timestamp")
        by_secret, by_key = _signatures(listed)
        signed = b".".join((id, timestamp, delivery.body))
        return MixedClaim(id, sent, signed, by_secret, by_key, self.tolerance)


@dataclass(frozen=True, slots=True)
class MixedClaim:
    """What is signed, with its signatures by secret and by public key."""

    id: bytes
    sent: int
    signed: bytes
    by_secret: list[bytes]
    by_key: list[bytes]
    tolerance: float

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> str:
        """`webhook-id`. Raises Unverified: `malformed` or `signature`; OutOfTime."""
        found = False
        for secret in secrets:
            if isinstance(secret, PublicKey):
                for signature in self.by_key:
                    found |= ed25519.verifies(secret, signature, self.signed)
            elif self.by_secret:
                found |= fits(signatures(self.signed, (secret,), "base64"), self.by_secret)
        if not found:
            raise nothing_fits()
        event_id = readable(self.id, "webhook-id")
        check_age(self.sent, now, self.tolerance, "webhook-timestamp", event_id)
        return event_id


def _signatures(value: bytes) -> tuple[list[bytes], list[bytes]]:
    """The signatures in a header: HMACs in base64, and those of ed25519. Other versions are not looked at."""
    check_few(value.count(b" ") + 1, "webhook-signature")
    items = [item.split(b",") for item in value.split(b" ")]
    if any(len(item) != 2 for item in items):
        raise Unverified("malformed", "webhook-signature is not a list of version,signature")
    by_key = [_decoded(signature) for version, signature in items if version == b"v1a"]
    if len(by_key) > MOST_BY_KEY:
        raise Unverified("malformed", f"webhook-signature has more than {MOST_BY_KEY} signatures of version v1a")
    return [signature for version, signature in items if version == b"v1"], by_key


def _decoded(signature: bytes) -> bytes:
    try:
        return base64.b64decode(signature, validate=True)
    except binascii.Error:
        return b""

"""The scheme of Stripe: `Stripe-Signature: t=..,v1=..[,v1=..]`, HMAC-SHA256 in hex over `t.body`.

The key is the whole text of the secret, `whsec_` and all. Stripe's own library takes a time stamp of any future, the
first of several and one that is written otherwise; all of that is refused here.
"""

import re
from dataclasses import dataclass
from typing import Final

from idem.outbox.domain.webhook import Signed, Unverified
from idem.outbox.providers.schemes.deliveries import TOLERANCE, HmacClaim, check_few, header, seconds

SECRET: Final = re.compile(r"whsec_[!-~]{16,}")

NAME: Final = b"stripe-signature"
STAMP: Final = "t of Stripe-Signature"


@dataclass(frozen=True, slots=True)
class StripeSignatures:
    """The scheme. `tolerance`: seconds by which a time stamp may differ from our clock, in either direction."""

    tolerance: float = TOLERANCE

    def parse_secret(self, text: str) -> bytes:
        """The key: all of `whsec_…`. Raises ValueError, which never contains it."""
        kind = text.partition("_")[0]
        if kind in ("sk", "rk", "pk"):
            raise ValueError(f"it begins with {kind}_, as an API key: the signing secret of an endpoint is whsec_…")
        if not SECRET.fullmatch(text):
            raise ValueError("a signing secret of Stripe is whsec_ and 16 or more characters, without spaces")
        return text.encode()

    def read(self, delivery: Signed) -> HmacClaim:
        """Raises Unverified: `missing`, `malformed` or `timestamp`."""
        value = header(delivery.headers, NAME)
        check_few(value.count(b","), "Stripe-Signature")
        items = [item.partition(b"=") for item in value.split(b",")]
        if any(name in (b"t", b"v1") and not equals for name, equals, _ in items):
            raise Unverified("malformed", "Stripe-Signature is not a list of name=value")
        stamps = [value for name, _, value in items if name == b"t"]
        if len(stamps) != 1:
            raise Unverified("malformed", "Stripe-Signature has not exactly one t")
        sent = seconds(stamps[0], STAMP)
        signed = b".".join((stamps[0], delivery.body))
        # v0 is a signature of test events, by another rule.
        given = [value for name, _, value in items if name == b"v1"]
        return HmacClaim(signed, given, "hex", sent, STAMP, self.tolerance)

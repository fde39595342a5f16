"""What every scheme asks of a delivery and of a secret."""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from idem.outbox.domain.webhook import DeliveryHeaders, OutOfTime, Unverified

SignatureEncoding: TypeAlias = Literal["hex", "base64"]

TOLERANCE: Final = 300.0
"""Seconds between a delivery's time stamp and its receipt, in either direction: what two clocks may differ by."""

SECONDS: Final = re.compile(rb"[1-9][0-9]{0,10}")
"""Whole seconds and nothing else: no sign, no fraction, no exponent, and no milliseconds."""

MOST_SIGNATURES: Final = 10
"""In one header: a secret that is being changed makes two or three. What has more is refused before any is tried."""

LEAST_SECRET: Final = 8
"""Characters of a secret that is used as it stands. Providers make longer ones; a shorter one can be guessed."""


def header(headers: DeliveryHeaders, name: bytes) -> bytes:
    """The value of a header that must be there once; `name` in lower case. Raises Unverified."""
    found = [value for each, value in headers if each.lower() == name]
    shown = name.decode("latin-1")
    if len(found) > 1:
        raise Unverified("malformed", f"{shown} was sent more than once")
    if not found or not found[0]:
        raise Unverified("missing", f"{shown} is missing")
    return found[0]


def check_few(signatures: int, name: str) -> None:
    """That a header does not have so many that comparing them would cost. Raises Unverified."""
    if signatures > MOST_SIGNATURES:
        raise Unverified("malformed", f"{name} has more than {MOST_SIGNATURES} signatures")


def seconds(stamp: bytes, name: str) -> int:
    """A time stamp in POSIX seconds. Raises Unverified."""
    if not SECONDS.fullmatch(stamp):
        raise Unverified("timestamp", f"{name} is no whole number of seconds")
    return int(stamp)


def check_age(sent: int, now: float, tolerance: float, name: str, id: str | None) -> None:
    """That a delivery was sent near our clock; all three are seconds. To be asked last: it says that all else is right.

    `id`: the event's, as far as it is signed. Raises OutOfTime.
    """
    if abs(now - sent) > tolerance:
        raise OutOfTime(f"{name} is more than {tolerance:g} seconds away from our clock", id, now - sent)


def readable(value: bytes, name: str) -> str:
    """An event's id as text. Raises Unverified."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        # Read by another rule it could be the id of another event, which would then be a duplicate.
        raise Unverified("malformed", f"{name} is not UTF-8") from None


def fits(wanted: Iterable[bytes], given: Sequence[bytes]) -> bool:
    """Whether one of the signatures is one of the wanted ones. Every pair is compared, even after one that fits."""
    found = False
    for each in wanted:
        for signature in given:
            found |= hmac.compare_digest(each, signature)
    return found


def signatures(signed: bytes, secrets: Iterable[bytes], encoding: SignatureEncoding) -> Iterator[bytes]:
    """The HMAC-SHA256 of these bytes under each secret."""
    for secret in secrets:
        digest = hmac.digest(secret, signed, hashlib.sha256)
        yield digest.hex().encode() if encoding == "hex" else base64.b64encode(digest)


def nothing_fits() -> Unverified:
    """What is raised where no signature is right."""
    return Unverified("signature", "no signature matches an active secret")


@dataclass(frozen=True, slots=True)
class HmacClaim:
    """Bytes that HMAC-SHA256 signs as a whole, with the signatures that came with them; the ids are in the body.

    `sent`: the signed time stamp in POSIX seconds, which `stamp` carries; None: there is none.
    """

    signed: bytes = field(repr=False)
    given: Sequence[bytes] = field(repr=False)
    encoding: SignatureEncoding = "hex"
    sent: int | None = None
    stamp: str = ""
    tolerance: float = TOLERANCE

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> None:
        """Raises Unverified: `signature`; OutOfTime."""
        if not fits(signatures(self.signed, secrets, self.encoding), self.given):
            raise nothing_fits()
        if self.sent is not None:
            check_age(self.sent, now, self.tolerance, self.stamp, None)


def plain(secret: str) -> bytes:
    """The key of a secret that is used as it stands. Raises ValueError, which never contains it."""
    if secret != secret.strip():
        raise ValueError("the secret begins or ends with a space")
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"the secret has fewer than {LEAST_SECRET} characters")
    return secret.encode()

"""Credentials made anew at every sending: an HMAC over the frozen bytes, a token that another program renews."""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from idem.outbox.domain.contract import FrozenRequest, Signer
from idem.outbox.providers.template import Hole, Text, compile_text

Algorithm: TypeAlias = Literal["sha256", "sha512"]
Digits: TypeAlias = Literal["hex", "base64"]
Timestamp: TypeAlias = Literal["seconds", "milliseconds", "rfc3339"]

PLACES: Final = ("method", "path", "host", "timestamp", "body")


def compile_over(text: str) -> Text:
    """The parts of what is signed. Raises ValueError: a lone brace, or a place that there is none of."""
    parts = compile_text(text)
    for part in parts:
        if isinstance(part, Hole) and (part.name not in PLACES or part.optional):
            raise ValueError(f"{part.name!r} cannot be signed: {', '.join(f'{{{place}}}' for place in PLACES)} can")
    return parts


@dataclass(frozen=True, slots=True)
class HmacSigner:
    """A `Signer` of `idem.outbox.domain.contract`.

    `over` is what is signed: the method, the target as it is sent (path and query), the host with its port where it is
    no default one, the time and the raw body. The time is sent in `timestamp_header` where `over` has it.
    """

    secret: bytes = field(repr=False)
    over: Text
    header: str = "X-Signature"
    prefix: str = ""
    algorithm: Algorithm = "sha256"
    encoding: Digits = "hex"
    timestamp_header: str = "X-Timestamp"
    timestamp: Timestamp = "seconds"

    def headers(self, request: FrozenRequest, origin: str, now: float) -> Mapping[str, str]:
        stamp = _stamp(now, self.timestamp)
        values = {
            "method": request.method.encode(),
            "path": request.path.encode(),
            "host": urlsplit(origin).netloc.encode(),
            "timestamp": stamp.encode(),
            "body": request.body,
        }
        signed = b"".join(part.encode() if isinstance(part, str) else values[part.name] for part in self.over)
        digest = hmac.digest(self.secret, signed, self.algorithm)
        signature = digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()
        made = {self.header: self.prefix + signature}
        return {**made, self.timestamp_header: stamp} if self.stamped else made

    @property
    def stamped(self) -> bool:
        """Whether the time is signed."""
        return any(isinstance(part, Hole) and part.name == "timestamp" for part in self.over)


@dataclass(frozen=True, slots=True)
class RenewedToken:
    """A `Signer` of `idem.outbox.domain.contract`: the token that is in the file now, as Authorization.

    The program that renews it writes another file and renames it, so that idem never reads half a token.
    """

    path: Path
    prefix: str = ""

    @property
    def token(self) -> str:
        """The token that is in the file now. Raises OSError, ValueError: there is none."""
        token = self.path.read_text(encoding="ascii").strip()
        if not token:
            raise ValueError("the file of the token is empty")
        return token

    def headers(self, request: FrozenRequest, origin: str, now: float) -> Mapping[str, str]:
        """Raises OSError, ValueError: there is no token, and nothing is sent."""
        return {"Authorization": self.prefix + self.token}


@dataclass(frozen=True, slots=True)
class Signers:
    """Several of them: the headers of each."""

    each: tuple[Signer, ...]

    def headers(self, request: FrozenRequest, origin: str, now: float) -> Mapping[str, str]:
        return {name: value for signer in self.each for name, value in signer.headers(request, origin, now).items()}


def _stamp(now: float, form: Timestamp) -> str:
    match form:
        case "seconds":
            return str(int(now))
        case "milliseconds":
            return str(int(now * 1000))
        case "rfc3339":
            return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

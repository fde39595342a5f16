"""The request as it goes on the wire: the frozen bytes, the credentials, and each name once."""

import functools
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

import httpx

from idem.outbox.domain.contract import Account, FrozenRequest
from idem.outbox.values.errors import ConfigError

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

USER_AGENT = "idem"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*")
_TARGET = re.compile(r"/[\x21\x22\x24-\x7e]*")
_HOP_BY_HOP = frozenset(
    {"transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect"}
)
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
"""Methods that say the length of their body where there is none, too (RFC 9110 section 8.6)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host (ASCII, IDNA-encoded, without brackets), port, and the Host header."""

    scheme: str
    host: str
    port: int
    authority: str


def origin(account: Account) -> Origin:
    """The account's origin in parts. Raises ConfigError: it is more or less than scheme, host and port."""
    return _origin(account.name, account.origin)


@functools.lru_cache
def _origin(name: str, said: str) -> Origin:
    where = f"account {name!r}: origin"
    try:
        url = httpx.URL(said)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{where} is not a URL; write it like https://api.example.com") from error
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise ConfigError(f"{where} must start with http:// or https:// and name a host")
    if url.userinfo or url.path != "/" or url.query or url.fragment or said.endswith(("?", "#")):
        raise ConfigError(f"{where} must be scheme, host and port only; the path belongs to the request")
    if url.port is not None and not 0 < url.port < 65536:
        raise ConfigError(f"{where} has a port outside 1 to 65535")
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    return Origin(url.scheme, url.raw_host.decode("ascii"), port, url.netloc.decode("ascii"))


def check_account(account: Account) -> None:
    """Raises ConfigError if no call of this account could be made: for start-up."""
    head(account, FrozenRequest("GET", "/", {}, b""))


def head(account: Account, request: FrozenRequest, *, keep: bool = True) -> list[tuple[str, str]]:
    """The header lines of the request in the order of sending, each name once; signed now, if the account signs.

    `keep`: the connection may be used again. Raises ConfigError, without quoting a value, if the method, target or a
    header cannot be sent as it is (RFC 9110 sections 5.5 and 9.1, visible ASCII only), or a name comes twice.
    """
    where = origin(account)
    if request.method not in METHODS:
        raise ConfigError(f"method {request.method!r} is not one of {', '.join(sorted(METHODS))}")
    if not _TARGET.fullmatch(request.path):
        raise ConfigError("the path must start with '/' and be percent-encoded, without a fragment")
    length = len(request.body)
    frozen = _checked(request.headers.items(), "request header", length)
    given = [*account.credentials.items(), *_signature(account, request)]
    secret = _checked(given, f"account {account.name!r}: credentials", length)
    for name in secret.keys() & frozen.keys():
        raise ConfigError(f"header {name!r} is in the request and in the credentials of account {account.name!r}")
    lines = {"host": ("Host", where.authority), **frozen, **secret}
    lines.setdefault("user-agent", ("User-Agent", USER_AGENT))
    lines["accept-encoding"] = ("Accept-Encoding", "identity")
    if not keep:
        lines["connection"] = ("Connection", "close")
    if length or request.method in _WITH_LENGTH:
        lines["content-length"] = ("Content-Length", str(length))
    return list(lines.values())


def on_the_wire(request: FrozenRequest, lines: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of the request under these header lines: its target and body as they were frozen."""
    said = "".join([f"{name}: {value}\r\n" for name, value in lines])
    return f"{request.method} {request.path} HTTP/1.1\r\n{said}\r\n".encode("ascii") + request.body


def _signature(account: Account, request: FrozenRequest) -> list[tuple[str, str]]:
    if account.signer is None:
        return []
    try:
        return list(account.signer.headers(request, account.origin, time.time()).items())
    except Exception as error:
        # Not `from error`: what a signer says may quote what it signs with.
        raise ConfigError(f"account {account.name!r}: its signer failed ({type(error).__name__})") from None


def _checked(headers: Iterable[tuple[str, str]], where: str, length: int) -> dict[str, tuple[str, str]]:
    """By lower-case name. What we send ourselves may be there with our own value only, and is left out."""
    ours = {"accept-encoding": "identity", "content-length": str(length)}
    lines: dict[str, tuple[str, str]] = {}
    for name, value in headers:
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise ConfigError(f"{where}: {name!r} is not a valid header name")
        if lower == "host" or lower in _HOP_BY_HOP or ours.get(lower, value) != value:
            raise ConfigError(f"{where}: idem sets {name!r} itself")
        if lower in lines:
            raise ConfigError(f"{where}: {name!r} appears twice")
        if value and not _VALUE.fullmatch(value):
            raise ConfigError(
                f"{where}: the value of {name!r} is not visible ASCII (a curly quotation mark, a line break?)"
            )
        if lower not in ours:
            lines[lower] = (name, value)
    return lines

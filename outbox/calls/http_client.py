"""The HTTP client of a slot, the request as it goes on the wire, and the response as it comes from there.

Every setting of the construction is a part of the proof of "not sent": no HTTP/2 (it sends again by itself), no
redirects, no authentication flow, no proxy from the environment, no retries, no connection used twice.
"""

import functools
import os
import re
import ssl
import sys
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import certifi
import httpcore
import httpx

from idem.outbox.calls import response_head
from idem.outbox.domain.contract import Account, Contract, FrozenRequest
from idem.outbox.values.errors import ConfigError

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
"""CONNECT above all is not among them: the recorder of a call takes it for a proxy's."""

USER_AGENT = "idem"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*")
_TARGET = re.compile(r"/[\x21\x22\x24-\x7e]*")
_HOP_BY_HOP = frozenset(
    {"transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect"}
)

# Mocking libraries replace these on the classes themselves; a transport is stock only while they are what they were.
_UNTOUCHED = tuple(
    (owner, name, getattr(owner, name))
    for owner, name in (
        (httpx.AsyncClient, "send"),
        (httpx.AsyncClient, "_transport_for_url"),
        (httpx.AsyncHTTPTransport, "handle_async_request"),
        (httpcore.AsyncConnectionPool, "handle_async_request"),
        (httpcore.AsyncHTTPConnection, "handle_async_request"),
        (httpcore.AsyncHTTP11Connection, "handle_async_request"),
    )
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host (ASCII, IDNA-encoded, without brackets), port or None for the default, and the Host header."""

    scheme: str
    host: str
    port: int | None
    authority: str


def ssl_context(authorities: str | None = None) -> ssl.SSLContext:
    """The TLS settings of a lane: who may sign the provider's certificate, and nothing else of the environment.

    `authorities` is a file of PEM certificates, and they alone are trusted then; else the file or folder that
    SSL_CERT_FILE or SSL_CERT_DIR names, as of every program; else certifi's roots. The session keys are written
    nowhere, SSLKEYLOGFILE or not. Raises ConfigError where the file has no certificate.
    """
    if authorities is not None:
        return _context(authorities, None, "ca_file")
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    if file or folder:
        return _context(file, folder, "SSL_CERT_FILE" if file else "SSL_CERT_DIR")
    return _context(certifi.where(), None, "certifi")


@functools.cache
def _context(file: str | None, folder: str | None, named: str) -> ssl.SSLContext:
    # Not `ssl.create_default_context`, which obeys SSLKEYLOGFILE. Cached: loading is slow, and a process may have a
    # lane for each of many accounts.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(file, folder)
    except OSError as error:
        why = "it contains no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"{named}: {file or folder} cannot be used: {why}. Name a file of certificate authorities"
        ) from None
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context


def stock_client(context: ssl.SSLContext, contract: Contract) -> httpx.AsyncClient:
    """A client for one call at a time, on a new connection each time."""
    transport = httpx.AsyncHTTPTransport(
        verify=context,
        http2=False,
        retries=0,
        trust_env=False,
        limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
    )
    connect = contract.connect_timeout
    client = httpx.AsyncClient(
        transport=transport,
        follow_redirects=False,
        trust_env=False,
        timeout=httpx.Timeout(connect=connect, read=contract.deadline, write=contract.deadline, pool=connect),
    )
    response_head.bound(client)
    return client


def is_stock(client: httpx.AsyncClient) -> bool:
    """Whether the absence of trace events proves anything with this client. Doubt is False.

    It reads private attributes of httpx; in a release that lacks them no client is stock, and no call is ever proven
    not sent.
    """
    transport = getattr(client, "_transport", None)
    pool = getattr(transport, "_pool", None)
    return (
        type(client) is httpx.AsyncClient
        and type(transport) is httpx.AsyncHTTPTransport
        and not getattr(client, "_mounts", True)
        and getattr(pool, "_http2", True) is False
        and getattr(pool, "_retries", 1) == 0
        and not client.follow_redirects
        and not client.trust_env
        and client.auth is None
        and not any(client.event_hooks.values())
        and all(getattr(owner, name, None) is code for owner, name, code in _UNTOUCHED)
    )


def origin(account: Account) -> Origin:
    """The account's origin in parts. Raises ConfigError: it is more or less than scheme, host and port."""
    where = f"account {account.name!r}: origin"
    try:
        url = httpx.URL(account.origin)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{where} is not a URL; write it like https://api.example.com") from error
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise ConfigError(f"{where} must start with http:// or https:// and name a host")
    if url.userinfo or url.path != "/" or url.query or url.fragment or account.origin.endswith(("?", "#")):
        raise ConfigError(f"{where} must be scheme, host and port only; the path belongs to the request")
    if url.port is not None and not 0 < url.port < 65536:
        raise ConfigError(f"{where} has a port outside 1 to 65535")
    return Origin(url.scheme, url.raw_host.decode("ascii"), url.port, url.netloc.decode("ascii"))


def check_account(account: Account) -> None:
    """Raises ConfigError if no call of this account could be made: for start-up."""
    head(account, FrozenRequest("GET", "/", {}, b""))


def head(account: Account, request: FrozenRequest) -> list[tuple[str, str]]:
    """The header lines of the request in the order of sending, each name once; signed now, if the account signs.

    Raises ConfigError, without quoting a value, if the method, target or a header cannot be sent as it is
    (RFC 9110 sections 5.5 and 9.1, visible ASCII only), or a name comes twice.
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
    lines["connection"] = ("Connection", "close")
    return list(lines.values())


def outgoing(
    account: Account, request: FrozenRequest, address: str, *, connect_timeout: float, deadline: float, trace: object
) -> httpx.Request:
    """The request to an IP address, with the Host header and TLS name of the account's origin.

    Built past the client, so that neither its default headers nor cookies of another row get into it. The target goes
    out as it was frozen, byte for byte. Raises ConfigError.
    """
    where = origin(account)
    extensions: dict[str, object] = {
        "trace": trace,
        "target": request.path.encode("ascii"),
        "timeout": {"connect": connect_timeout, "pool": connect_timeout, "read": deadline, "write": deadline},
    }
    if where.host != address:
        extensions["sni_hostname"] = where.host
    return httpx.Request(
        request.method,
        httpx.URL(scheme=where.scheme, host=address, port=where.port, path="/"),
        headers=head(account, request),
        content=request.body,
        extensions=extensions,
    )


def named(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; several lines of one name are joined (RFC 9110 section 5.3)."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def decoded(headers: dict[str, str], body: bytes, limit: int) -> bytes | None:
    """The body without its content coding; None if it is broken, longer than `limit`, or in a coding unknown here.

    We ask for `identity`; a provider that compresses all the same must still be understood after the money moved.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity") or not body:
        return body
    if coding not in ("gzip", "x-gzip"):
        return None
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = unzip.decompress(body, limit)
    except zlib.error:
        return None
    return plain if unzip.eof and not unzip.unused_data else None


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

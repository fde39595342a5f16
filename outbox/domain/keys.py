"""Idempotency keys: reading the client's, fingerprinting its request, deriving the one sent to the provider."""

import hashlib
import hmac
import re
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from idem.outbox.values.canonical import PLAIN, canonical
from idem.outbox.values.errors import KeyInvalid

MAX_LENGTH: Final = 255
"""Characters, which are bytes: the key is ASCII. The column has the same limit."""

MAX_TENANT: Final = 255
"""Bytes of a tenant in UTF-8: what is unique is tenant, operation and key, and an index row has a limit."""

QUOTED: Final = re.compile(r'"([!#-\[\]-~]*)"')
BARE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")
"""Visible ASCII without quote, backslash, comma and semicolon."""

SEPARATOR: Final = b"\n"

PROVIDER_KEY_DOMAIN: Final = "idem provider key v1"
"""Stands first in the message, so that the same secret can sign other things without ever meeting this one."""


def parse_key(text: str | None, strict: bool = False) -> str:
    """The key in the text of an `Idempotency-Key` field or argument.

    Follows draft-ietf-httpapi-idempotency-key-header-07 (expired): the value is a String of RFC 9651, in quotes.
    What nearly everybody sends, the bare spelling, is the same key; `strict` refuses it. 1 to 255 visible ASCII
    characters (no space); quotes and backslashes are never part of a key, commas and semicolons only in quotes.

    Raises KeyInvalid, with the reason.
    """
    stripped = "" if text is None else text.strip(" \t")
    if not stripped:
        raise KeyInvalid("the idempotency key is missing: send an Idempotency-Key of 1 to 255 visible ASCII characters")
    quoted = QUOTED.fullmatch(stripped)
    if quoted is not None:
        key = quoted[1]
        if not key:
            raise KeyInvalid("the idempotency key is empty")
    elif strict and not stripped.startswith('"'):
        raise KeyInvalid('the idempotency key must be in double quotes (a String of RFC 9651): "…"')
    elif BARE.fullmatch(stripped):
        key = stripped
    else:
        raise KeyInvalid(f"the idempotency key is not usable: {_why_not(stripped)}")
    if len(key) > MAX_LENGTH:
        raise KeyInvalid(f"the idempotency key has {len(key)} characters; at most {MAX_LENGTH} are allowed")
    return key


def tenant_fault(tenant: str) -> str | None:
    """Why this text cannot name a tenant; None: it can."""
    if not tenant:
        return "it is empty"
    if (size := len(tenant.encode("utf-8", "surrogatepass"))) > MAX_TENANT:
        return f"it has {size} bytes; at most {MAX_TENANT} are allowed"
    return None


def fingerprint(
    operation: str,
    body: Any,
    path: str | None = None,
    query: str | Mapping[str, Any] | None = None,
    *,
    written: str | None = None,
) -> str:
    """The fingerprint of a client's request: `v1:` and the SHA-256 of its canonical JSON (RFC 8785), in hex.

    The JSON is `{"operation", "path", "query", "body"}`; a path or query that is None or empty and a body that is
    None are left out. A body of `{}` is a body. The SQL form has operation and body only, so a caller whose key is
    to mean the same request on both ways leaves out path and query, as `POST /v1/intents/{operation}` does.

    `written` is the canonical text of the body, where it is known. Raises BodyInvalid where the body has no canonical
    form.
    """
    if written is not None and not path and (query is None or isinstance(query, str)):
        asked = f',"query":{PLAIN.encode(query)}' if query else ""
        text = f'{{"body":{written},"operation":{PLAIN.encode(operation)}{asked}}}'
        return f"v1:{hashlib.sha256(text.encode()).hexdigest()}"
    request: dict[str, Any] = {"operation": operation}
    if path:
        request["path"] = path
    if query:
        request["query"] = dict(query) if isinstance(query, Mapping) else query
    if body is not None:
        request["body"] = body
    return f"v1:{hashlib.sha256(canonical(request)).hexdigest()}"


def raw_fingerprint(
    operation: str, body: bytes, path: str | None = None, query: str | Mapping[str, Any] | None = None
) -> str:
    """The fingerprint of a request whose body is not JSON: `v1-raw:` and the SHA-256 over its bytes, in hex.

    A path or query is part of it where there is one, as in `fingerprint`.
    """
    head: Any = operation
    if path or query:
        head = {"operation": operation} | ({"path": path} if path else {})
        if query:
            head["query"] = dict(query) if isinstance(query, Mapping) else query
    # Canonical JSON cannot contain a raw newline, so the head and the body cannot flow into each other.
    return f"v1-raw:{hashlib.sha256(canonical(head) + SEPARATOR + body).hexdigest()}"


def provider_key(secret: bytes, tenant: str, operation: str, key: str, step: int, generation: int) -> uuid.UUID:
    """The key that is sent to the provider: HMAC-SHA256 of its parts, as a UUID of version 8 (RFC 9562).

    Derived and not random, so that a client's retry after lost commits meets the provider's own memory. `step`
    counts the calls of the operation from 1, `generation` the keys that were used up for the step, from 1. Its
    text has 36 characters, which every provider takes.

    Raises ValueError if the secret is empty.
    """
    if not secret:
        raise ValueError("the installation secret is empty: run `idem db upgrade`")
    # A canonical JSON array is unambiguous: no part can flow into its neighbour.
    message = _array([PROVIDER_KEY_DOMAIN, tenant, operation, key, step, generation])
    number = int.from_bytes(_signed(secret, message)[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76  # the version
    number = number & ~(0x3 << 62) | 0x2 << 62  # the variant
    return uuid.UUID(int=number)


def _array(parts: list[str | int]) -> bytes:
    # Texts and small whole numbers alone: json writes their canonical form.
    try:
        return PLAIN.encode(parts).encode()
    except UnicodeEncodeError:
        return canonical(parts)  # says what is wrong


@lru_cache(8)
def _begun(secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, digestmod="sha256")


def _signed(secret: bytes, message: bytes) -> bytes:
    # To begin with a secret costs more than all that follows.
    signing = _begun(secret).copy()
    signing.update(message)
    return signing.digest()


def _why_not(text: str) -> str:
    if any(not "!" <= character <= "~" for character in text.replace(", ", ",").replace("; ", ";")):
        return "only visible ASCII characters are allowed, no spaces"
    if "\\" in text:
        return "a backslash or an escaped quote is not allowed"
    after_string = re.match(r'"[^"]*"\s*([;,])', text)
    separator = after_string[1] if after_string else next((c for c in ",;" if c in text and '"' not in text), None)
    if separator == ";":
        return "parameters are not allowed"
    if separator == ",":
        return "it is a list (or the header was sent twice); send one key"
    return "double quotes are allowed only around the whole key"

"""Reads a request: its key, its body, how long the client wants to wait. Hostile input gets a 4xx here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from idem.outbox.domain import keys
from idem.outbox.http_server import body_memory
from idem.outbox.http_server.problems import ProblemError
from idem.outbox.http_server.whole_body import WHOLE_BODY
from idem.outbox.providers import tracing
from idem.outbox.values import canonical
from idem.outbox.values.errors import BodyInvalid, KeyInvalid

if TYPE_CHECKING:
    from starlette.requests import Request

    from idem.outbox.http_server.body_memory import Reservation

JSON_TYPE: Final = re.compile(r"application/(json|[a-z0-9!#$&^_.+-]{1,100}\+json)", re.IGNORECASE)
FORM_TYPE: Final = "application/x-www-form-urlencoded"

READ_AWAY: Final = 16 * 1024 * 1024
"""Bytes of a body that is too large which are read and forgotten: a client that still writes hears no answer."""

BODY_TIME: Final = 30.0
"""Seconds for a whole body: one that comes by drops would hold a request, and the end of the process, for ever."""

WAIT: Final = re.compile(r'wait[ \t]*=[ \t]*("?)([0-9]{1,9})\1', re.IGNORECASE)


def query(request: Request) -> str | None:
    """The query as it was sent; None where there is none. A URL of the framework's would hang on what `Host` says."""
    raw: bytes = request.scope.get("query_string", b"")
    return raw.decode("latin-1") or None


def key(request: Request) -> str:
    """The idempotency key, in whichever spelling. Raises ProblemError (`key_missing`, `key_invalid`)."""
    found = request.headers.getlist("idempotency-key")
    if not found or not any(value.strip(" \t") for value in found):
        raise missing_key()
    if len(found) > 1:
        raise ProblemError("key_invalid", "The header Idempotency-Key was sent more than once; send one key.")
    return _parsed(found[0], strict=False)


def check_key(request: Request, parsed: str, *, strict: bool, least: int) -> None:
    """The rules for a new key. Raises ProblemError (`key_invalid`)."""
    _parsed(request.headers["idempotency-key"], strict)
    if len(parsed) < least:
        raise ProblemError(
            "key_invalid",
            f"The idempotency key has {len(parsed)} characters; this operation requires at least {least}.",
        )


def _parsed(text: str, strict: bool) -> str:
    try:
        return keys.parse_key(text, strict)
    except KeyInvalid as error:
        raise ProblemError("key_invalid", sentence(error)) from None


def missing_key() -> ProblemError:
    """The problem for a request without a key."""
    return ProblemError(
        "key_missing",
        "Send an Idempotency-Key of 1 to 255 visible ASCII characters: a new key for each request, the same key for "
        "its retries.",
    )


def check_media_type(request: Request) -> None:
    """Require JSON in UTF-8. Raises ProblemError (`unsupported_media_type`)."""
    types = request.headers.getlist("content-type")
    media_type, _, parameters = (types[0] if len(types) == 1 else "").partition(";")
    if not JSON_TYPE.fullmatch(media_type.strip()):
        said = f"it says {types[0][:100]!a}" if len(types) == 1 else f"there are {len(types)} of them"
        raise ProblemError("unsupported_media_type", f"Content-Type must be application/json; {said}.")
    charset = re.search(r'charset[ \t]*=[ \t]*"?([^";, \t]*)', parameters, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8"):
        raise ProblemError("unsupported_media_type", "JSON is UTF-8 (RFC 8259); idem reads no other charset.")
    check_coding(request)


def check_coding(request: Request) -> None:
    """Require a body without a content coding. Raises ProblemError (`unsupported_media_type`)."""
    if any(coding.strip().lower() not in ("", "identity") for coding in request.headers.getlist("content-encoding")):
        raise ProblemError("unsupported_media_type", "Send the body without a content coding.")


def is_form(content_type: str) -> bool:
    """Whether this Content-Type is that of a form."""
    return content_type.partition(";")[0].strip().lower() == FORM_TYPE


async def body(
    request: Request,
    limit: int,
    seconds: float,
    late: ProblemError,
    more: Callable[[], Awaitable[int]] | None = None,
    held: Reservation | None = None,
) -> bytes:
    """The bytes of the body. `more` is asked once, by a body that is larger than `limit`: the limit that holds for it.

    What is larger than its limit is read and forgotten, up to `READ_AWAY`. `held` counts what is kept of it. Raises
    ProblemError: `body_too_large`, `late` when it takes longer than `seconds`, and what `held` raises. Raises
    ClientDisconnect if its client went away.
    """
    whole: bytes | None = request.scope.get("state", {}).get(WHOLE_BODY)
    if whole is not None and len(whole) <= limit:
        if held is not None:
            held.add(len(whole))
            held.complete()
        return whole
    allowed = limit
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said[:20]) > READ_AWAY:
        raise too_large(allowed, close=True)
    # A list of parts would take many times their bytes where they come one by one.
    kept = bytearray()
    size = 0
    try:
        async with asyncio.timeout(seconds) as clock:
            if held is not None:
                held.watch(clock)
            async for part in request.stream():
                size += len(part)
                if size > limit and more is not None:
                    limit, more = await more(), None
                if size <= limit:
                    if held is not None:
                        held.add(len(part))
                    kept += part
                elif size > READ_AWAY:
                    break
                else:
                    kept.clear()
                    if held is not None:
                        held.drop()
    except TimeoutError:
        raise (late if held is None or not held.gave_way else body_memory.full()) from None
    if size > limit:
        raise too_large(allowed, close=size > READ_AWAY)
    if held is not None:
        held.complete()
    return bytes(kept)


def too_large(allowed: int, *, close: bool = False) -> ProblemError:
    """The problem for a body that is larger than the limit."""
    headers = {"Connection": "close"} if close else None
    return ProblemError("body_too_large", f"At most {allowed} bytes are allowed.", headers=headers)


def params(raw: bytes, values: int) -> Any:
    """The value of a body. Raises ProblemError (`body_invalid`) with the pointer of the culprit."""
    try:
        return canonical.parse(raw, values=values)
    except BodyInvalid as error:
        raise body_problem(error) from None


def body_problem(error: BodyInvalid) -> ProblemError:
    """The problem for a body that idem cannot store exactly."""
    return ProblemError("body_invalid", sentence(error), errors=[(error.pointer, error.message)])


def wait(request: Request, cap: float) -> float | None:
    """Seconds for which the client wants to wait (`Prefer: wait`, RFC 7240), capped; None: it does not say.

    The first one counts; what cannot be understood is left out, as the RFC says.
    """
    for line in request.headers.getlist("prefer"):
        for preference in line.split(","):
            found = WAIT.fullmatch(preference.partition(";")[0].strip())
            if found is not None:
                return min(float(found[2]), cap)
    return None


def trace(request: Request) -> str | None:
    """The `traceparent` of the request (W3C Trace Context), if it is one."""
    return tracing.valid(request.headers.get(tracing.HEADER))


def sentence(error: Exception) -> str:
    """An error's text as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."

"""The dependency of FastAPI that makes a call of a request. Loaded where it is used: FastAPI need not be there."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import quote
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request

from idem.application import replies
from idem.application.audit import MARK
from idem.application.call import AsyncCall, Call
from idem.application.keyed_request import NATURAL, KeyedRequest
from idem.application.misuse import Misuse
from idem.application.replies import Reply
from idem.outbox.api import reading
from idem.outbox.api.large_bodies import HEAVY, LIGHT
from idem.outbox.http_server.problems import ProblemError

if TYPE_CHECKING:
    from idem.application.operation import Operation

DEFAULT_TENANT: Final = "default"
LONGEST_WAIT: Final = 300.0
PATH: Final = "/-._~!$&'()*+,;=:@"
"""What stands in a path as it is (RFC 3986, 3.3)."""
Made = TypeVar("Made", AsyncCall, Call)


def dependency(operation: Operation[Any], made: type[Made], tenant: Callable[..., Any] | None) -> Callable[..., Any]:
    """A dependency that reads the request's key, body and address. What is wrong with them is the answer."""
    header = _header()

    async def call(request: Request, tenant: Any = DEFAULT_TENANT, key: Any = None) -> Made:
        if not isinstance(tenant, str | int | UUID) or isinstance(tenant, bool) or not str(tenant):
            given = "no tenant" if tenant is None or tenant == "" else f"a {type(tenant).__name__}"
            raise Misuse(
                f"the dependency that Idem(tenant=…) names gave {given}: it has to give the account of a request's "
                "credential as text, a number or a UUID (`user.account_id`, not the user), and to refuse (401) a "
                "request that has none; else a retry would meet other keys than its first request, or another's"
            )
        return made(operation, await read(operation, request, str(tenant)))

    parameters = [inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)]
    if tenant is not None:
        from fastapi import Depends

        parameters.append(
            inspect.Parameter("tenant", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, Depends(tenant)])
        )
    if header is not None:
        parameters.append(inspect.Parameter("key", inspect.Parameter.KEYWORD_ONLY, annotation=header, default=None))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    setattr(call, MARK, operation.name)
    return call


def _header() -> Any:
    try:
        from fastapi import Header
    except ImportError:
        return None
    # It is read from the request itself; this is for the OpenAPI document.
    return Annotated[
        str | None,
        Header(alias="Idempotency-Key", description="1 to 255 visible ASCII characters: new for each request, the same "
               "for its retries."),
    ]  # fmt: skip


async def read(operation: Operation[Any], request: Request, tenant: str) -> KeyedRequest | Reply:
    """The client's request in one of Starlette, or the problem that answers it."""
    found = request.headers.getlist("idempotency-key")
    if len(found) > 1:
        return replies.problem(
            ProblemError("key_invalid", "The header Idempotency-Key was sent more than once; send one key.")
        )
    if not found and request.method not in NATURAL:
        # Before the body is read: a request without a key is refused at once.
        return operation.request_or_problem(key=None, tenant=tenant)
    body = await _body(request)
    # A form that was read already has no size that says whether it is large.
    size = len(body) if isinstance(body, bytes) else LIGHT + 1
    return await HEAVY.run(tenant, size, lambda: operation.request_or_problem(
        key=found[0] if found else None, tenant=tenant, body=body, method=request.method,
        path=quote(request.scope["path"], safe=PATH), query=request.scope["query_string"].decode("latin-1") or None,
        traceparent=reading.trace(request),
        wait=reading.wait(request, LONGEST_WAIT),
    ))  # fmt: skip


async def _body(request: Request) -> Any:
    if getattr(request, "_form", None) is not None:
        return await _form(request)
    raw = await request.body()
    if raw and request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        # Its boundary is another one in each request, retries too: the fields are what was sent.
        try:
            return await _form(request)
        except (HTTPException, AssertionError):  # not a form, or no parser is installed
            return raw
    return raw


async def _form(request: Request) -> Any:
    """A form that the endpoint has read already: its fields in their order, files by their digests."""
    fields: list[list[str]] = []
    for name, value in (await request.form()).multi_items():
        if isinstance(value, str):
            fields.append([name, value])
        else:
            await value.seek(0)
            fields.append([name, f"sha256:{hashlib.sha256(await value.read()).hexdigest()}"])
            await value.seek(0)
    return {"form": fields}

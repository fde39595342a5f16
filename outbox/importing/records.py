"""Reads one line of JSON about one request of the previous system, and turns it into an intent."""

import base64
import binascii
import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from idem.outbox.accept.prepare import Prepared, prepare
from idem.outbox.domain import keys
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import FrozenRequest, ProviderRequest
from idem.outbox.domain.operation import Answer, check_answer
from idem.outbox.providers import response
from idem.outbox.values import canonical, storable
from idem.outbox.values.errors import BodyInvalid, ConfigError, IdemError, ParamsInvalid

LINE_LIMIT = 16 * 2**20
"""Most bytes of a line: an answer may have 8 MiB, and more in base64."""

WHY_LIMIT = 600
"""Most characters of the message about a wrong line, which may quote the line."""

ImportedState: TypeAlias = Literal["queued", "in_flight", "failed", "completed", "refused"]
"""queued: never sent. in_flight: it may have been sent, and the outcome is not known. failed: proven not executed, at
rest. completed, refused: it has ended, and its client has the answer.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ImportedBody(_Strict):
    """Bytes: as text (UTF-8), or in base64 if they are not text."""

    body: str | None = None
    body_base64: str | None = None

    def content(self) -> bytes:
        """The bytes. Raises ValueError."""
        if self.body is not None and self.body_base64 is not None:
            raise ValueError("give `body` or `body_base64`, not both")
        if self.body_base64 is not None:
            try:
                return base64.b64decode(self.body_base64, validate=True)
            except binascii.Error as error:
                raise ValueError(f"body_base64 is not valid base64: {error}") from error
        return (self.body or "").encode()


class StoredAnswer(ImportedBody):
    """The answer that the client got, byte for byte."""

    status: int
    headers: dict[str, str] = {}


class ImportedRequest(ImportedBody):
    """The request that was sent to the provider, byte for byte, without its credentials."""

    method: str
    path: str
    headers: dict[str, str] = {}


class LineMembers(_Strict):
    """The members of a line. Times need a time zone."""

    tenant: str
    operation: str
    key: str
    params: Any
    state: ImportedState
    answer: StoredAnswer | None = None
    reference: str | None = None
    provider_key: str | None = None
    first_sent_at: AwareDatetime | None = None
    request: ImportedRequest | None = None
    expires_at: AwareDatetime | None = None


class LineError(IdemError):
    """What is wrong with a line, and which one it is."""

    def __init__(self, number: int, why: str) -> None:
        why = storable.text(why, WHY_LIMIT)
        super().__init__(f"line {number}: {why}")
        self.number, self.why = number, why


@dataclass(frozen=True, slots=True)
class ImportedLine:
    """A line that can be imported. `digest` tells whether a line is the one that was imported before."""

    number: int
    shape: LineMembers
    prepared: Prepared
    answer: Answer | None
    digest: str

    @property
    def scope(self) -> tuple[str, str, str]:
        """What is unique: tenant, operation and key."""
        return (self.prepared.tenant, self.prepared.operation.name, self.prepared.key)


def read(number: int, text: bytes, catalogue: Catalogue, secret: bytes) -> ImportedLine:
    """Check one line against its shape and its operation. `secret` is the installation's. Raises LineError."""
    try:
        if len(text) > LINE_LIMIT:
            raise ValueError(f"it has more than {LINE_LIMIT} bytes; a line of an export is never that long")
        parsed = canonical.parse(text, limit=LINE_LIMIT)
        shape = LineMembers.model_validate(parsed)
        answer = _answer(shape)
        _check_times(shape)
        return ImportedLine(
            number, shape, _prepared(shape, catalogue, secret), answer, hashlib.sha256(text.strip()).hexdigest()
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise LineError(number, f"{where}: {first['msg']}") from error
    except BodyInvalid as error:
        raise LineError(number, f"it is not JSON that idem can store exactly: {error}") from error
    except ParamsInvalid as error:
        raise LineError(number, f"params: the operation refuses the params: {error}") from error
    except (IdemError, ValueError, TypeError) as error:
        raise LineError(number, str(error)) from error


def _answer(shape: LineMembers) -> Answer | None:
    ended = shape.state in ("completed", "refused")
    if ended != (shape.answer is not None):
        raise ValueError(
            f"answer: a line that is {shape.state} needs one: the status, headers and body that the client got"
            if ended
            else f"answer: a line that is {shape.state} must not have one, because nothing was decided"
        )
    if shape.answer is None:
        return None
    answer = Answer(shape.answer.status, shape.answer.content(), dict(shape.answer.headers))
    check_answer(answer)
    return answer


def _check_times(shape: LineMembers) -> None:
    if shape.state != "in_flight":
        if shape.request is not None or shape.first_sent_at is not None:
            raise ValueError(f"request, first_sent_at: only an in_flight line has them; this line is {shape.state}")
        return
    if shape.first_sent_at is None:
        raise ValueError("first_sent_at: say when it was first sent; the provider's retention counts from then")
    if shape.provider_key is None and shape.reference is None:
        raise ValueError(
            "provider_key: say under which key it was sent, or give the provider's reference for the look-up"
        )
    if shape.request is not None and shape.provider_key is None:
        raise ValueError("provider_key: a request can be sent again only under the key under which it was sent")


def _prepared(shape: LineMembers, catalogue: Catalogue, secret: bytes) -> Prepared:
    operation = catalogue.named(shape.operation)
    if operation.operation.step is not None:
        raise ConfigError(
            f"operation: {shape.operation} has several steps, and a line does not say which are done: import it under "
            "an operation of one call"
        )
    if operation.operation.kind != "provider":
        raise ConfigError(
            f"operation: {shape.operation} is {operation.operation.kind}: only calls that idem makes can be imported"
        )
    if operation.operation.approve is not None:
        raise ConfigError(
            f"operation: {shape.operation} wants an approval of its calls (approve), and a call of another system was "
            "not approved here. Import its lines without `approve`, and set it again after that"
        )
    if (fault := keys.tenant_fault(shape.tenant)) is not None:
        raise ValueError(f"tenant: {fault}")
    if shape.reference is not None and response.reference(shape.reference) is None:
        raise ValueError(
            f"reference: it has {len(shape.reference)} characters; a provider's reference has 1 to "
            f"{response.MAX_REFERENCE} visible ones"
        )
    prepared = prepare(
        catalogue.operations,
        catalogue.providers,
        secret,
        tenant=shape.tenant,
        operation=shape.operation,
        key=keys.parse_key(shape.key),
        params=shape.params,
    )
    _check_key(shape, prepared)
    provider_key = prepared.provider_key if shape.provider_key is None else _provider_key(shape.provider_key)
    if shape.request is not None:
        request = FrozenRequest(
            shape.request.method.upper(), shape.request.path, dict(shape.request.headers), shape.request.content()
        )
        _check_request(request, prepared, str(provider_key))
    elif provider_key == prepared.provider_key:
        assert prepared.request is not None  # a flow is refused above
        request = prepared.request
    else:
        wanted: ProviderRequest = prepared.operation.request(prepared.params)
        request = prepared.provider.freeze(wanted, str(provider_key))
    return replace(prepared, provider_key=provider_key, request=request)


def _check_key(shape: LineMembers, prepared: Prepared) -> None:
    """Check that the key is known: the derived key was never sent, so a provider asked by it would answer that nothing
    exists.
    """
    contract = prepared.provider.contract
    by_key = contract.lookup.possible or contract.replays or contract.cancel is not None
    if shape.state == "in_flight" and shape.provider_key is None and by_key:
        raise ValueError(
            f"provider_key: say under which key it was sent. Provider {contract.provider} settles by the key, and "
            "answers for any other key that nothing exists. The `reference` alone is enough only where lookup.by_id "
            "is the provider's only way to settle. If you do not have the key, let the old system settle this one"
        )


def _provider_key(text: str) -> UUID:
    try:
        key = UUID(text)
    except ValueError:
        key = None
    if key is None or str(key) != text:
        raise ValueError(
            f"provider_key: {text[:60]!r} is not a UUID in lower case with hyphens, the only form in which idem sends "
            "a key; let the old system settle this one"
        )
    return key


OURS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""Headers that the sender creates for each send."""


def _check_request(request: FrozenRequest, prepared: Prepared, provider_key: str) -> None:
    rule = prepared.provider.contract.key
    account = prepared.provider.accounts[prepared.operation.account]
    headers = {name.lower(): value for name, value in request.headers.items()}
    secret = {name.lower() for name in account.credentials} | {"authorization", "proxy-authorization", "cookie"}
    if named := sorted(headers.keys() & secret):
        raise ValueError(f"request.headers: {', '.join(named)} is a credential, and credentials are never stored")
    if named := sorted(headers.keys() & OURS):
        raise ValueError(f"request.headers: {', '.join(named)} is created for each send: omit it")
    if not request.path.startswith("/"):
        raise ValueError("request.path: it must start with a slash; the account has the origin")
    name = (rule.name or "").lower()
    if rule.carrier == "header" and headers.get(name) != provider_key:
        raise ValueError(f"request.headers: {name} is not the provider_key under which it was sent")
    if rule.carrier == "body" and provider_key.encode() not in request.body:
        raise ValueError("request.body: the provider_key under which it was sent is not in it")

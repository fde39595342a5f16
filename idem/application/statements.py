"""The statements of a call inside the caller's transaction: reserve, submit, complete; and how a request stands."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from idem.application.connections import ConnectionAdapter
from idem.application.keyed_request import KeyedRequest
from idem.outbox.accept import accept, status
from idem.outbox.accept.prepare import Prepared
from idem.outbox.accept.status import STATUS, Status
from idem.outbox.domain.decisions import Decision, Limited
from idem.outbox.domain.operation import Answer


@dataclass(frozen=True, slots=True)
class Reserved:
    """The key is new, and this transaction has it: it is to be submitted, completed or refused before the commit."""

    intent_id: UUID
    expires_at: datetime


ReserveResult: TypeAlias = Reserved | Decision

RESERVE: Final = f"""
SELECT {accept.DECIDED}
  FROM idem.reserve(
           CAST(:tenant AS text), CAST(:operation AS text), CAST(:key AS text), CAST(:fingerprint AS text),
           make_interval(secs => CAST(:key_ttl AS double precision)),
           make_interval(secs => CAST(:patience AS double precision)),
           CAST(:refuse_after_expiry AS boolean), true, CAST(:provider AS text), CAST(:account AS text), true,
           CAST(:served AS jsonb)) AS d
"""  # noqa: S608


def reserve(adapter: ConnectionAdapter, request: KeyedRequest) -> tuple[ReserveResult, KeyedRequest]:
    """One round trip; a second where the key was accepted while the operation left out other members.

    The request as it is stored comes back with the decision. Raises Unserved, RetryTransaction and StoreUnavailable.
    """
    decided = _reserve(adapter, request)
    composed = request.as_stored(decided)
    return (decided, request) if composed is None else (_reserve(adapter, composed), composed)


def _reserve(adapter: ConnectionAdapter, request: KeyedRequest) -> ReserveResult:
    operation = request.operation
    row = adapter.row(
        RESERVE,
        {
            "tenant": request.tenant,
            "operation": operation.name,
            "key": request.key,
            "fingerprint": request.fingerprint,
            "key_ttl": operation.key_ttl,
            "patience": operation.patience,
            "refuse_after_expiry": operation.after_expiry == "refuse",
            "provider": operation.provider if operation.kind == "provider" else None,
            "account": operation.account,
            "served": operation.served,
        },
    )
    if row.decision == "reserved":
        return Reserved(row.intent_id, accept.moment(row.expires_at))
    decided = accept.decision(row)
    assert not isinstance(decided, Limited)  # only a caller that sets a limit gets it, and none is set here
    return decided


STILL_OPEN: Final = """
SELECT k.reserved FROM idem.idempotency_keys k
 WHERE k.tenant_id = CAST(:tenant AS text) AND k.operation = CAST(:operation AS text)
   AND k.idempotency_key = CAST(:key AS text) AND k.intent_id = CAST(:intent AS uuid)
"""


def still_open(adapter: ConnectionAdapter, intent: UUID, request: KeyedRequest) -> bool:
    """Whether this transaction has a reservation that is to be submitted, completed or refused yet."""
    parameters = {"tenant": request.tenant, "operation": request.operation.name, "key": request.key, "intent": intent}
    row = adapter.row(STILL_OPEN, parameters)
    return row is not None and bool(row.reserved)


SUBMIT: Final = """
SELECT idem.submit(
           CAST(:intent AS uuid), CAST(:tenant AS text), CAST(:operation AS text), CAST(:key AS text),
           CAST(:params AS jsonb), CAST(:label AS text),
           CAST(:provider AS text), CAST(:account AS text), CAST(:origin AS text), CAST(:provider_key AS uuid),
           CAST(:method AS text), CAST(:path AS text), CAST(:headers AS jsonb), CAST(:body AS bytea),
           make_interval(secs => CAST(:patience AS double precision)),
           CAST(:replay_window AS integer), CAST(:marks_start AS boolean), CAST(:traceparent AS text),
           CAST(:plan AS jsonb), CAST(:ordering_group AS text), CAST(:ordering_key AS text),
           CAST(:refusal_holds AS boolean), CAST(:approval AS text), CAST(:asked_by AS text))
"""
NOT_SUBMITTED: Final = frozenset({"fingerprint", "key_ttl", "may_create", "refuse_after_expiry", "count"})


def submit(adapter: ConnectionAdapter, intent: UUID, prepared: Prepared) -> None:
    """Write intent, outbox row and frozen request of a reserved key."""
    said = accept.parameters(prepared)
    adapter.row(SUBMIT, {"intent": intent, **{name: said[name] for name in said.keys() - NOT_SUBMITTED}})


COMPLETE: Final = """
SELECT idem.complete(
           CAST(:intent AS uuid), CAST(:tenant AS text), CAST(:operation AS text), CAST(:key AS text),
           CAST(:params AS jsonb), CAST(:label AS text), CAST(:outcome AS text),
           CAST(:status AS smallint), CAST(:headers AS jsonb), CAST(:body AS bytea),
           make_interval(secs => CAST(:answer_ttl AS double precision)))
"""


def complete(
    adapter: ConnectionAdapter, intent: UUID, request: KeyedRequest, outcome: str, answer: Answer, label: str | None
) -> None:
    """Complete a reserved key with its answer, without any call: `outcome` is `local` or `refused`."""
    adapter.row(
        COMPLETE,
        {
            "intent": intent,
            "tenant": request.tenant,
            "operation": request.operation.name,
            "key": request.key,
            "params": json.dumps(request.params, ensure_ascii=False, allow_nan=False),
            "label": label,
            "outcome": outcome,
            "status": answer.status,
            "headers": json.dumps(dict(answer.headers)),
            "body": answer.body,
            "answer_ttl": request.operation.answer_ttl,
        },
    )


def read_status(adapter: ConnectionAdapter, request: KeyedRequest) -> Status | None:
    """How a request stands now; None: its key is not there."""
    row: Any = adapter.row(STATUS, status.columns([request.identity]))
    return None if row is None else status.status_of(row)

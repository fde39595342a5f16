"""Accept: intent, key and outbox row in one transaction. The statement, its parameters, and the decision it gives.

`prepare` (in its own module) is pure Python; this is one SQL function and one round trip, on whichever connection.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from idem.outbox.accept.prepare import Prepared
from idem.outbox.domain.decisions import (
    Accepted,
    Decision,
    Expired,
    InProgress,
    Limited,
    Mismatch,
    NeedsOperator,
    Replay,
    Retrying,
    Unknown,
)
from idem.outbox.domain.operation import Answer, OperationSpec
from idem.outbox.values.errors import ConfigError, Unserved

MINIMUM_RETRY_AFTER = 1.0
"""Seconds: the smallest `retry_after`, so that a due row is not polled in a tight loop."""


CALLING = 5.0
"""Seconds: the largest `retry_after` while the call is being made."""


DECIDED = """d.decision, d.intent_id, d.response_status, d.response_headers, d.response_body, d.status, d.due_in,
       d.reasons, d.provider_reference, d.interim, d.fingerprint,
       CAST(extract(epoch FROM d.completed_at) * 1000000 AS bigint) AS completed_at,
       CAST(extract(epoch FROM d.expires_at) * 1000000 AS bigint) AS expires_at"""
"""The columns of a decision. Times are microseconds since 1970: the text of a timestamp depends on the session's
DateStyle, and psycopg reads that of ISO alone."""
AS_JSON = json.JSONEncoder()
"""json.dumps makes one each time."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ACCEPT = f"""
SELECT {DECIDED}
  FROM idem.accept(
           CAST(:tenant AS text), CAST(:operation AS text), CAST(:key AS text), CAST(:fingerprint AS text),
           CAST(:params AS jsonb), CAST(:label AS text),
           CAST(:provider AS text), CAST(:account AS text), CAST(:origin AS text), CAST(:provider_key AS uuid),
           CAST(:method AS text), CAST(:path AS text), CAST(:headers AS jsonb), CAST(:body AS bytea),
           make_interval(secs => CAST(:key_ttl AS double precision)),
           make_interval(secs => CAST(:patience AS double precision)),
           CAST(:replay_window AS integer), CAST(:marks_start AS boolean), CAST(:traceparent AS text),
           CAST(:may_create AS boolean), CAST(:refuse_after_expiry AS boolean),
           CAST(:count AS boolean), CAST(:plan AS jsonb), CAST(:ordering_group AS text), CAST(:ordering_key AS text),
           CAST(:refusal_holds AS boolean), CAST(:approval AS text), CAST(:asked_by AS text)) AS d
"""  # noqa: S608


def parameters(prepared: Prepared, *, may_create: bool = True, count: bool = True) -> dict[str, Any]:
    """The parameters of `ACCEPT`. Without `may_create` a key that is new is refused, a known one is answered; without
    `count` the caller counts the decision itself.

    Raises ConfigError for an operation of which no worker can make the call.
    """
    operation, contract = prepared.operation, prepared.provider.contract
    check_kind(operation)
    return {
        **wanted(prepared),
        "method": None if prepared.request is None else prepared.request.method,
        "path": None if prepared.request is None else prepared.request.path,
        "headers": None if prepared.request is None else AS_JSON.encode(dict(prepared.request.headers)),
        "plan": prepared.plan,
        "replay_window": int(contract.replay_window),
        "marks_start": contract.start_mark,
        "ordering_group": None if prepared.ordering_key is None else operation.ordering_group or operation.name,
        "ordering_key": prepared.ordering_key,
        "refusal_holds": operation.on_head_refused == "hold",
        "may_create": may_create,
        "count": count,
        "approval": prepared.approval,
        "asked_by": prepared.asked_by,
    }


def check_kind(operation: OperationSpec | None) -> None:
    """Raises ConfigError for an operation of which no worker can make the call."""
    if operation is not None and operation.kind != "provider":
        raise ConfigError(f"operations.{operation.name}: it is {operation.kind}: a worker cannot make its call")


def wanted(prepared: Prepared) -> dict[str, Any]:
    """The parameters of every statement that begins an intent, for workers and inline callers."""
    operation = prepared.operation
    return {
        "tenant": prepared.tenant,
        "operation": operation.name,
        "key": prepared.key,
        "fingerprint": prepared.fingerprint,
        "params": prepared.written,
        "label": prepared.label,
        "provider": operation.provider,
        "account": operation.account,
        "origin": prepared.provider.accounts[operation.account].origin,
        "provider_key": prepared.provider_key,
        "body": None if prepared.request is None else prepared.request.body,
        "key_ttl": operation.key_ttl,
        "patience": operation.patience,
        "traceparent": prepared.traceparent,
        "refuse_after_expiry": operation.after_expiry == "refuse",
    }


def moment(microseconds: int) -> datetime:
    """A time of a decision, from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def decision(row: Any) -> Decision | Limited:
    """The decision in a row with the columns of `DECIDED`. Raises Unserved for a key that stays at rest."""
    wait = max(MINIMUM_RETRY_AFTER, row.due_in or 0.0)
    match row.decision:
        case "accepted":
            return Accepted(row.intent_id, moment(row.expires_at), row.status or "pending")
        case "retrying":
            return Retrying(row.intent_id, row.status)
        case "replay":
            headers = row.response_headers
            answer = Answer(
                row.response_status,
                bytes(row.response_body),
                json.loads(headers) if isinstance(headers, str) else headers,
            )
            return Replay(row.intent_id, answer, moment(row.completed_at), moment(row.expires_at))
        case "in_progress":
            interim = json.loads(row.interim) if isinstance(row.interim, str) else row.interim
            if row.status == "claimed":
                # Its lease is the latest end of a call, not the likely one.
                wait = min(wait, CALLING)
            elif row.status == "waiting":
                # When those before it end is not known.
                wait = max(wait, CALLING)
            return InProgress(row.intent_id, row.status, wait, row.provider_reference, interim)
        case "unknown":
            return Unknown(row.intent_id, wait, lease_over=row.status == "claimed")
        case "needs_operator":
            return NeedsOperator(row.intent_id, tuple(row.reasons))
        case "mismatch":
            return Mismatch(row.intent_id, row.fingerprint)
        case "expired":
            return Expired(row.intent_id)
        case "limited":
            return Limited()
        case "failed_retryable":
            raise Unserved(row.intent_id)
        case _ as unlisted:
            assert_never(unlisted)

"""Accept: intent, key and outbox row in the caller's own transaction.

`prepare` (in its own module) is pure Python; `decide` is one SQL function and one round trip. Both are written once,
synchronous; asynchronous code goes through `run_sync`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, assert_never

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from idem.outbox import config
from idem.outbox.accept.prepare import REFUSED_NOW, Prepared, prepare
from idem.outbox.database import checkout
from idem.outbox.database.caller_errors import said, sqlstate
from idem.outbox.database.installation import NOT_INSTALLED, SECRET, check_marks
from idem.outbox.database.notify import Nudge
from idem.outbox.domain import keys
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
from idem.outbox.domain.provider import Provider
from idem.outbox.values.errors import ConfigError, IdemError, StoreUnavailable, Unserved

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

MINIMUM_RETRY_AFTER = 1.0
"""Seconds: what a client is told at the least, so that a due row is not polled in a tight loop."""


CALLING = 5.0
"""Seconds: what a client is told at the most while the call is being made."""


class Acceptor:
    """Accepts requests for a set of operations; made once, holds no connection.

    `nudge` wakes idle workers after the caller's commit; without it they find the row by polling.
    """

    def __init__(
        self, operations: Mapping[str, OperationSpec], providers: Mapping[str, Provider], nudge: Nudge | None = None
    ) -> None:
        self._operations = operations
        self._providers = providers
        self._nudge = nudge
        self._secret: bytes | None = None

    @classmethod
    def load(cls, path: Path | str | None = None, nudge: Nudge | None = None) -> Self:
        """An acceptor for all that idem.toml and `IDEM_…` configure. Raises ConfigError with every mistake."""
        found = config.load(path)
        return cls(found.operations, found.providers, nudge)

    def accept(
        self,
        connection: Connection | Session,
        tenant: str,
        operation: str,
        key: str,
        params: Any,
        *,
        traceparent: str | None = None,
    ) -> Decision:
        """Decide about one request inside the caller's open transaction; the caller commits.

        A key that is known is decided by what it was accepted under, whatever the operation would refuse now. Raises
        KeyInvalid, BodyInvalid, ParamsInvalid, Unrenderable, Unserved, RetryTransaction and StoreUnavailable. After an
        exception the caller's transaction is to be rolled back.
        """
        if isinstance(connection, Session):
            connection = checkout.connection_of(connection)
        secret, parsed = self._installation_secret(connection), keys.parse_key(key)
        try:
            check_kind(self._operations.get(operation))
            prepared = prepare(
                self._operations,
                self._providers,
                secret,
                tenant=tenant,
                operation=operation,
                key=parsed,
                params=params,
                traceparent=traceparent,
            )
        except REFUSED_NOW as error:
            decided = self._known(connection, tenant, operation, parsed, params, error)
        else:
            decided = decide(connection, prepared)
        if self._nudge is not None and isinstance(decided, Accepted | Retrying):
            self._nudge.after_commit(connection)
        return decided

    def _known(
        self, connection: Connection, tenant: str, operation: str, key: str, params: Any, refused: IdemError
    ) -> Decision:
        """The status of the key of a request that the operation refuses now. Raises `refused` where it is new."""
        from idem.outbox.accept import known_keys

        def row(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.execute(text(statement), dict(values)).first()

        found = known_keys.recall(
            row, known_keys.Retry(tenant, operation, key, params), self._operations.get(operation)
        )
        return known_keys.decision(found, refused)

    async def accept_async(
        self,
        connection: AsyncConnection | AsyncSession,
        tenant: str,
        operation: str,
        key: str,
        params: Any,
        *,
        traceparent: str | None = None,
    ) -> Decision:
        """The same over AsyncConnection and AsyncSession, on their own connection and in their transaction."""
        return await connection.run_sync(
            lambda sync: self.accept(sync, tenant, operation, key, params, traceparent=traceparent)
        )

    def _installation_secret(self, connection: Connection) -> bytes:
        # Read once a process: the secret of an installation never changes.
        if self._secret is None:
            row = connection.execute(text(SECRET)).first()
            if row is None:
                raise StoreUnavailable(NOT_INSTALLED)
            check_marks(row.environment, self._providers.values())
            self._secret = bytes(row.secret)
        return self._secret


DECIDED = """d.decision, d.intent_id, d.response_status, d.response_headers, d.response_body, d.status, d.due_in,
       d.reasons, d.provider_reference, d.interim, d.fingerprint,
       CAST(extract(epoch FROM d.completed_at) * 1000000 AS bigint) AS completed_at,
       CAST(extract(epoch FROM d.expires_at) * 1000000 AS bigint) AS expires_at"""
"""The columns of a decision. Times are microseconds since 1970: the text of a timestamp depends on the session's
DateStyle, and psycopg reads that of ISO alone."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ACCEPT = text(f"""
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
           CAST(:count AS boolean)) AS d
""")  # noqa: S608


@cache
def pyformat(statement: str) -> str:
    """A statement with the parameters of psycopg: `%(name)s` for each `:name`."""
    return re.sub(r"(?<![:\w]):([a-z_]+)\b", r"%(\1)s", statement)


def parameters(prepared: Prepared, *, may_create: bool = True, count: bool = True) -> dict[str, Any]:
    """The parameters of `ACCEPT`. Without `may_create` a key that is new is refused, a known one is answered; without
    `count` the caller counts the decision itself.

    Raises ConfigError for an operation of which no worker can make the call.
    """
    operation, contract = prepared.operation, prepared.provider.contract
    check_kind(operation)
    return {
        **wanted(prepared),
        "method": prepared.request.method,
        "path": prepared.request.path,
        "headers": json.dumps(dict(prepared.request.headers)),
        "replay_window": int(contract.replay_window),
        "marks_start": contract.start_mark,
        "may_create": may_create,
        "count": count,
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
        "body": prepared.request.body,
        "key_ttl": operation.key_ttl,
        "patience": operation.patience,
        "traceparent": prepared.traceparent,
        "refuse_after_expiry": operation.after_expiry == "refuse",
    }


def decide(connection: Connection, prepared: Prepared) -> Decision:
    """One round trip. Raises RetryTransaction (SQLSTATE 40001) and StoreUnavailable."""
    try:
        row = connection.execute(ACCEPT, parameters(prepared)).one()
    except DBAPIError as error:
        if (meant := said(sqlstate(error.orig), error, away=error.connection_invalidated)) is None:
            raise
        raise meant from error
    decided = decision(row)
    assert not isinstance(decided, Limited)  # it is asked for, and here nobody asks
    if (composed := prepared.as_stored(decided)) is not None:
        return decide(connection, composed)
    return decided


def moment(microseconds: int) -> datetime:
    """A time of a decision, from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def decision(row: Any) -> Decision | Limited:
    """The decision in a row with the columns of `DECIDED`. Raises Unserved for a key that stays at rest."""
    wait = max(MINIMUM_RETRY_AFTER, row.due_in or 0.0)
    match row.decision:
        case "accepted":
            return Accepted(row.intent_id, moment(row.expires_at))
        case "retrying":
            return Retrying(row.intent_id)
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

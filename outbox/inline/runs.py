"""The runs of one process: begun on a connection of their own, with heartbeats for the process that holds them."""

import asyncio
import weakref
from types import TracebackType
from typing import Self
from uuid import UUID

from psycopg import DatabaseError

from idem.outbox.accept.prepare import Prepared
from idem.outbox.daemon.daemon import Holds, Life
from idem.outbox.daemon.retry import wait
from idem.outbox.database import caller_errors
from idem.outbox.database.pool import AWAY, REFUSED, Database, time_limited
from idem.outbox.database.pooler import server_of
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.decisions import Decision
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import NotExecuted, Seen
from idem.outbox.domain.terms import Terms
from idem.outbox.inline.begin import Beginning, Begun, begin
from idem.outbox.inline.renewal import interval
from idem.outbox.inline.run import InlineRun, RunContext
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.settle import results
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.report import Report
from idem.outbox.values.backoff import backoff
from idem.outbox.values.durations import text
from idem.outbox.values.errors import AcceptPaused, ConfigError, StoreUnavailable, Unserved
from idem.outbox.worker import claim as claims
from idem.outbox.worker import lost_claims


class InlineRuns:
    """Begins runs of inline operations. Belongs to one event loop; `close` it, or use it as a context manager.

    `renew_every`: seconds between two renewals, at most a third of the lease of each inline operation; None: a third.
    `begin_within` and `report_within`: seconds for which the database may be away at either end of a run. Raises
    ConfigError for an operation whose lease has no room for its renewals. The database is the caller's.
    """

    def __init__(
        self,
        database: Database,
        catalogue: Catalogue,
        *,
        renew_every: float | None = None,
        begin_within: float = 10.0,
        report_within: float = 30.0,
    ) -> None:
        for operation in catalogue.operations.values():
            if operation.kind == "inline":
                interval(operation, renew_every)
        self._database = database
        self._renew_every = renew_every
        self._begin_within = begin_within
        self._holds = Holds()
        self._context = RunContext(database, Renderer(), self._holds, report_within)
        self._life = Life("inline")
        self._life.tokens = self._holds.tokens
        self._stop = asyncio.Event()
        self._living: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()
        self._runs: weakref.WeakSet[InlineRun] = weakref.WeakSet()

    async def begin(self, prepared: Prepared) -> InlineRun | Decision:
        """Take the call upon this caller, in a transaction of its own that has committed when this returns.

        An `InlineRun` is this caller's to make. Any other decision is not: another caller makes it, or it has an
        answer, or its end is not known. Raises StoreUnavailable where the database stayed away, AcceptPaused where an
        operator has paused it (no call was begun), and ConfigError for an operation that is not inline.
        """
        operation = prepared.operation
        if operation.kind != "inline":
            raise ConfigError(f"operations.{operation.name}: it is not inline, so your code does not make its call")
        every = interval(operation, self._renew_every)
        if self._living is None:
            self._living = asyncio.create_task(self._life.run(self._database, self._stop))
        token = claims.new_token()
        self._holds.hold(token)
        sent: list[int] = []
        try:
            found = await self._begin(prepared, token, sent)
        except (AcceptPaused, Unserved):
            self._holds.let_go(token)
            raise
        except BaseException:
            # Cancelled, or away for too long: what was sent may yet commit, and no caller makes that call.
            self._give_back(prepared, token, sent)
            raise
        if not isinstance(found, Begun):
            self._holds.let_go(token)
            telemetry.accepted(prepared.tenant, operation.name, prepared.key, found, counts=False)
            return found
        after_commit.begun(prepared.tenant, prepared.key, found.row, again=found.again)
        run = InlineRun(self._context, found, Terms(prepared.provider.contract, operation), every=every)
        self._runs.add(run)
        return run

    async def close(self) -> None:
        """Renew no longer, and end the heartbeats. A run that is open is left to its lease and the sweeper."""
        for run in list(self._runs):
            run.stop()
        if self._giving_back:
            await asyncio.wait(list(self._giving_back), timeout=self._context.report_within)
        self._stop.set()
        if self._living is not None:
            await self._living
            if not self._holds:
                # Only then can nothing of this process act any more.
                await self._life.end(self._database)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begin(self, prepared: Prepared, token: UUID, sent: list[int]) -> Beginning:
        loop, failed = asyncio.get_running_loop(), 0
        until = loop.time() + self._begin_within
        while True:
            known = len(sent)
            try:
                return await time_limited(max(1.0, until - loop.time()), self._once(prepared, token, sent))
            except (*AWAY, *REFUSED) as error:
                if len(sent) > known and loop.time() < until:
                    # It may still commit. Once it has ended, the same token finds what it has claimed, or is new.
                    await self._find(prepared, token, sent[-1], until - loop.time())
                failed += 1
                pause = backoff(failed, base=0.2, cap=2.0)
                if loop.time() + pause > until:
                    raise StoreUnavailable(
                        f"the database could not complete the request within {text(self._begin_within)}; no call was "
                        f"started. Send the same request with the same key again: {error}"
                    ) from error
                await asyncio.sleep(pause)

    async def _once(self, prepared: Prepared, token: UUID, sent: list[int]) -> Beginning:
        async with self._database.connection() as connection:
            sent.append(server_of(connection))
            try:
                return await begin(connection, prepared, token=token, holder=self._life.id)
            except DatabaseError as error:
                if (meant := caller_errors.paused(error)) is None:
                    raise
                raise meant from error

    async def _find(self, prepared: Prepared, token: UUID, backend: int, patience: float) -> list[OutboxRow]:
        provider, account = prepared.operation.provider, prepared.operation.account
        found = lost_claims.recover_lost_claim(
            self._database, provider, account, token, backend=backend, patience=patience
        )
        return list(await found)

    def _give_back(self, prepared: Prepared, token: UUID, sent: list[int]) -> None:
        if not sent:
            self._holds.let_go(token)
            return
        task = asyncio.create_task(self._give_back_orphans(prepared, token, sent[-1]))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back_orphans(self, prepared: Prepared, token: UUID, backend: int) -> None:
        terms = Terms(prepared.provider.contract, prepared.operation)
        note = Seen(note="given back: the answer to begin was lost, and no call was made")
        failed = 0
        try:
            patience = max(self._database.timeouts.statement, prepared.operation.lease)
            rows = await self._find(prepared, token, backend, patience)
            while rows and not self._stop.is_set():
                try:
                    async with self._database.connection() as connection:
                        await results.settle(
                            connection, [Report(row, NotExecuted("given_back"), note, terms) for row in rows]
                        )
                    break
                except (*AWAY, *results.WAITING):
                    failed += 1
                    await wait(self._stop, backoff(failed, base=0.2, cap=5.0))
        except Exception as error:  # its lease ends by itself
            telemetry.broken("inline", error, "giving back a run that has no caller")
        finally:
            self._holds.let_go(token)

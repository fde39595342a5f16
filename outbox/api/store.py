"""Accept for the HTTP API: one statement that commits itself, on a connection of the API's own pool.

A statement of its own needs no BEGIN and no COMMIT, so the answer that is lost is always the answer to a whole
accept: the same request again finds the row, or makes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection, DatabaseError
from psycopg.errors import InsufficientPrivilege

from idem.outbox.accept import accept, known_keys
from idem.outbox.accept.known_keys import NO_FINGERPRINT, Recalled, Retry, recall_async
from idem.outbox.accept.prepare import Prepared
from idem.outbox.accept.status import STATUS, RequestIdentity, columns
from idem.outbox.api.answers import unserved
from idem.outbox.database import caller_errors, installation
from idem.outbox.database.outage import Outage, OutageQuestion
from idem.outbox.database.pool import AWAY, REFUSED, Database, met_away, records
from idem.outbox.database.prepared import PreparedStatement
from idem.outbox.domain.decisions import Decision, Limited
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.http_server.problems import PAUSED_RETRY_AFTER, ProblemError
from idem.outbox.observe import telemetry
from idem.outbox.tenants.shares import Shares
from idem.outbox.values.errors import StoreUnavailable, Unserved
from idem.outbox.values.sql_parameters import pyformat

RETRY_AFTER: Final = 2.0
"""Seconds after which a client may try again when the database was away."""

MORE: Final = 1.0
"""Seconds beyond the two timeouts, so that the database's own refusal is heard before the bound."""

AT_ONCE: Final = 0.02
"""Seconds for what needs no database, while it is away."""

UNAVAILABLE: Final[tuple[type[Exception], ...]] = (*AWAY, *REFUSED)

ACCEPT: Final = PreparedStatement("idem_accept", accept.ACCEPT)
DECIDE: Final = PreparedStatement("idem_decide", known_keys.DECIDE)

Found = TypeVar("Found")


class Store:
    """The API's access to the database: every call ends within a time limit, or the client gets 503.

    `timeout` in seconds; a place in its tenant's share, a connection and a statement may each take as long, which the
    session and the pool hold themselves: the bound here is for a line that says nothing, which is given up then. Work
    goes on after its client has gone away: a COMMIT that is under way is not cut off.
    """

    def __init__(self, database: Database, timeout: float) -> None:
        self._database = database
        self._timeout = timeout
        self._bound = 2 * timeout + MORE
        self._running: set[asyncio.Task[Any]] = set()
        self._secret: bytes | None = None
        self._outage = Outage()
        self._shares = Shares(database.size)

    async def run(self, work: Callable[[AsyncConnection[Any]], Awaitable[Found]], tenant: str | None = None) -> Found:
        """Do this with a connection, of the tenant's share of the pool. Raises ProblemError (`store_unavailable`)."""
        give_back = await self._share(tenant)
        question = self._outage.ask()
        if question is None:
            give_back()
            raise unavailable()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = loop.create_future()
        # With the work, whose client may go before it ends. That the database is away is known before a place is free.
        answer.add_done_callback(lambda done: self._forget(done, question))
        answer.add_done_callback(lambda _: give_back())
        task = loop.create_task(self._with_connection(work))
        self._running.add(task)
        # psycopg takes seconds of its own to end on a silent line: nobody waits for that.
        bound = loop.call_later(self._bound, _give_up, task, answer, self._bound)
        task.add_done_callback(lambda done: self._ended(done, answer, bound))
        try:
            return await asyncio.shield(answer)
        except UNAVAILABLE as error:
            raise unavailable() from error
        except InsufficientPrivilege as error:
            raise _refused(error) from error

    async def decide(self, prepared: Prepared, *, may_create: bool = True) -> Decision | Limited:
        """Accept one request, whole or not at all: one round trip, committed by itself.

        Raises ProblemError (`store_unavailable`, `paused`, `not_executed`).
        """
        values = accept.parameters(prepared, may_create=may_create, count=False)
        try:
            return accept.decision(await self._row(ACCEPT, values, prepared.tenant))
        except Unserved as error:
            raise unserved(error.intent_id) from None
        except DatabaseError as error:
            if caller_errors.paused(error) is None:
                raise
            # Who paused it, and why, is not for clients.
            raise ProblemError(
                "paused", "New requests for this operation are paused.", retry_after=PAUSED_RETRY_AFTER
            ) from error

    async def retried(self, request: RequestIdentity, operation: OperationSpec) -> Decision | Limited | None:
        """The decision about a request whose key should be known; None: it is not. Raises as `decide`."""
        found = await self._row(DECIDE, known_keys.parameters(request, operation, count=False), request[0])
        try:
            return None if found.decision == "limited" else accept.decision(found)
        except Unserved as error:
            raise unserved(error.intent_id) from None

    async def knows(self, tenant: str, operation: str, key: str) -> bool:
        """Whether a key is known, for any content. Raises ProblemError (`store_unavailable`)."""
        wanted = columns([(tenant, operation, key, NO_FINGERPRINT)])

        async def work(connection: AsyncConnection[Any]) -> bool:
            return await (await connection.execute(pyformat(STATUS), wanted)).fetchone() is not None

        return await self.run(work, tenant)

    async def recall(
        self, retry: Retry, operation: OperationSpec | None, composed: Callable[[str], Awaitable[str]]
    ) -> Recalled | None:
        """The status of the key of a request that is refused now; `composed` as in `recall_async`, and no connection is
        held while it runs. Raises ProblemError (`store_unavailable`)."""

        async def row(statement: str, values: Mapping[str, Any]) -> Any:
            async def work(connection: AsyncConnection[Any]) -> Any:
                return await (await records(connection).execute(pyformat(statement), values)).fetchone()

            return await self.run(work, retry.tenant)

        return await recall_async(row, retry, operation, composed, count=False)

    async def secret(self) -> bytes:
        """The installation's secret, read once. Raises ProblemError (`store_unavailable`)."""
        if self._secret is None:
            self._secret = await self.run(secret)
        return self._secret

    async def guarded(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Await something that has its own way to the database, or needs none of it. Raises ProblemError
        (`store_unavailable`)."""
        task = asyncio.create_task(work)
        question: OutageQuestion | None = None
        away: bool | None = None
        try:
            if self._outage.on:
                # What is remembered is there at once.
                await asyncio.wait({task}, timeout=AT_ONCE)
                if not task.done():
                    question = self._outage.ask()
                    if question is None:
                        raise unavailable()
            found = await asyncio.wait_for(task, self._bound)
            away = None if question is None else False
            return found
        except UNAVAILABLE as error:
            away = met_away(error)
            raise unavailable() from error
        except InsufficientPrivilege as error:
            raise _refused(error) from error
        finally:
            task.cancel()
            if question is not None or away:
                self._outage.asked(question, away=away)

    async def _row(self, statement: PreparedStatement, values: Mapping[str, Any], tenant: str) -> Any:
        """One row of a statement that is its own transaction. In the task of the request, which nothing cancels but the
        end of the process: no other has to be begun for it."""
        give_back = await self._share(tenant)
        question = self._outage.ask()
        if question is None:
            give_back()
            raise unavailable()
        away: bool | None = None
        try:
            async with self._database.connection() as connection:
                found = await statement.row(connection, values, self._timeout + MORE)
            away = False
            return found
        except UNAVAILABLE as error:
            away = met_away(error)
            raise unavailable() from error
        except Exception as error:
            away = met_away(error)
            if isinstance(error, InsufficientPrivilege):
                raise _refused(error) from error
            raise
        finally:
            self._outage.asked(question, away=away)
            give_back()

    async def _share(self, tenant: str | None) -> Callable[[], None]:
        # While the database is away, one request asks it and the others hear so at once.
        if tenant is None or self._outage.on:
            return _nothing
        try:
            return await self._shares.acquire(tenant, self._timeout)
        except TimeoutError:
            raise unavailable() from None

    async def close(self) -> None:
        """Wait for running work."""
        if self._running:
            await asyncio.wait(self._running, timeout=self._bound)

    async def _with_connection(self, work: Callable[[AsyncConnection[Any]], Awaitable[Found]]) -> Found:
        async with self._database.connection() as connection:
            return await work(connection)

    def _ended(self, task: asyncio.Task[Found], answer: asyncio.Future[Found], bound: asyncio.TimerHandle) -> None:
        self._running.discard(task)
        bound.cancel()
        error = None if task.cancelled() else task.exception()
        if answer.done():
            return  # given up before
        if task.cancelled():
            answer.cancel()
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())

    def _forget(self, answer: asyncio.Future[Any], question: OutageQuestion) -> None:
        # By the work and not by who waited for it, who may have gone: reading its error here is enough then.
        self._outage.asked(question, away=None if answer.cancelled() else met_away(answer.exception()))


def _give_up(task: asyncio.Task[Any], answer: asyncio.Future[Any], seconds: float) -> None:
    answer.set_exception(TimeoutError(f"the database has not answered for {seconds:.0f} seconds"))
    task.cancel()


def _nothing() -> None:
    """Gives back no place."""


def _refused(error: InsufficientPrivilege) -> ProblemError:
    # A grant that was taken away, or a policy that would hide rows: no client's mistake, and its token may be good.
    telemetry.broken("api", error, "a request")
    return unavailable()


def unavailable() -> ProblemError:
    """The problem while the database cannot answer."""
    return ProblemError(
        "store_unavailable",
        "The database cannot answer now. Send the same request again with the same key: it happens at most once.",
        retry_after=RETRY_AFTER,
    )


async def secret(connection: AsyncConnection[Any]) -> bytes:
    """The secret that provider keys are derived from. Raises ProblemError (`store_unavailable`)."""
    try:
        return await installation.secret(connection)
    except StoreUnavailable:
        raise ProblemError(
            "store_unavailable", "The database is not set up: run `idem db upgrade`.", retry_after=RETRY_AFTER
        ) from None

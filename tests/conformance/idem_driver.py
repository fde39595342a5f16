"""idem's world in every state that the cases begin in, made by the daemons themselves wherever they can."""

import asyncio
import contextlib
from typing import Any
from uuid import UUID, uuid4

from conformance.installation import Installation
from fix_waiting import stopping

from idem import Answer
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.domain import keys
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.domain.outcomes import Seen
from idem.outbox.operator import actions, approvals
from idem.outbox.settle import results
from idem.outbox.settle.report import Report
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.worker import Worker
from idem.outcomes import NotExecuted, Outcome, Succeeded
from idem.reconciler.daemon import Reconciler
from idem.sweeper.daemon import Sweeper
from idem.testing.bank import Happening, RequestMatch
from idem.testing.conformance import ConformanceWorld
from idem.testing.conformance.requests import written

TENANT, OTHER = "acme", "globex"
LARGE = 1_048_576


class IdemDriver:
    """Steps of `idem.testing.conformance.driver.STEPS` for one installation."""

    def __init__(self, place: Installation, secret: bytes) -> None:
        self.place = place
        self._secret = secret
        self._limited = {"greedy": 0, "hoarder": 0}
        self._call: asyncio.Task[Any] | None = None
        self._release = asyncio.Event()

    # States of one key ------------------------------------------------------------------------------------------

    async def accepted(self, world: ConformanceWorld) -> None:
        """The opening request has done it."""

    async def running(self, world: ConformanceWorld) -> None:
        arrived, self._release = asyncio.Event(), asyncio.Event()
        release = self._release

        async def hold(_: Happening) -> None:
            arrived.set()
            await release.wait()

        self.place.bank.when("received", RequestMatch(key=self._provider_key(world)), hold, times=1)
        await self._alone(world)
        self._call = asyncio.create_task(self._work())
        await asyncio.wait_for(arrived.wait(), 20)

    async def completed(self, world: ConformanceWorld) -> None:
        if self._call is not None:
            self._release.set()
            await self._call
            self._call = None
        else:
            await self._alone(world)
            await self._work()
        await self._expect(world, "completed")

    async def completed_empty(self, world: ConformanceWorld) -> None:
        await self._settle(world, Succeeded("pay_1", "succeeded"), Answer(204, b"", {}))

    async def completed_large(self, world: ConformanceWorld) -> None:
        body = b'{"receipt":"' + b"x" * (LARGE - 14) + b'"}'
        await self._settle(world, Succeeded("pay_1", "succeeded"), Answer(201, body))

    async def completed_binary(self, world: ConformanceWorld) -> None:
        headers = {"content-type": "application/octet-stream", "x-receipt": "r-1"}
        await self._settle(world, Succeeded("pay_1", "succeeded"), Answer(200, bytes(range(256)), headers))

    async def refused(self, world: ConformanceWorld) -> None:
        await self._called(world, "decline", "completed")

    async def unknown(self, world: ConformanceWorld) -> None:
        await self._called(world, "act_then_drop", "unknown")

    async def awaiting(self, world: ConformanceWorld) -> None:
        await self._called(world, "pending:600", "in_progress")

    async def must_act(self, world: ConformanceWorld) -> None:
        await self._called(world, "requires_action:600", "in_progress" if world.operation == "acting" else "completed")

    async def failed_retryable(self, world: ConformanceWorld) -> None:
        """Too old to begin: what a queue that nobody worked on does to a row."""
        intent = await self._intent(world)
        await self._sql(TOO_OLD, intent)
        await self._sweep()
        await self._expect(world, "failed_retryable")

    async def needs_operator(self, world: ConformanceWorld) -> None:
        await self._settle(world, NotExecuted("request"), None)

    async def expired(self, world: ConformanceWorld) -> None:
        await self.completed(world)
        await self._sql(KEY_TIME_IS_OVER, await self._intent(world))
        await self._sweep()

    async def tombstone_gone(self, world: ConformanceWorld) -> None:
        await self.expired(world)
        await self._sql(A_MONTH_PASSES, await self._intent(world))
        await self._sweep()

    async def cancelled(self, world: ConformanceWorld) -> None:
        async with self.place.database.connection() as connection:
            await actions.cancel(
                connection, self.place.catalogue, await self._intent(world), by="ada", reason="not wanted"
            )

    async def approved(self, world: ConformanceWorld) -> None:
        intent, version = await self._seen(world)
        async with self.place.database.connection() as connection:
            await approvals.approve(
                connection, self.place.catalogue, intent, by="ada", reason="checked", version=version
            )
        await self.completed(world)

    async def rejected(self, world: ConformanceWorld) -> None:
        intent, version = await self._seen(world)
        async with self.place.database.connection() as connection:
            await approvals.reject(
                connection, self.place.catalogue, intent, by="ada", reason="not wanted", version=version
            )

    async def settled_later(self, world: ConformanceWorld) -> None:
        intent = await self._intent(world)
        self.place.bank.shift_clock(700)
        for _ in range(8):
            await self._sql(TIME_PASSES, intent)
            one = Reconciler(self.place.database, self.place.catalogue, ReconcilerSettings(lease=60), slots=4, margin=1)
            async with stopping(one):
                await one.run_once(hasten=True)
            if await self._state(intent) == "completed":
                return
        raise AssertionError(f"{intent} was not settled")

    async def late_failure(self, world: ConformanceWorld) -> None:
        await self._called(world, "drop_before_acting", "unknown")
        await self._sql(TIME_PASSES, await self._intent(world))
        intent, version = await self._seen(world)
        async with self.place.database.connection() as connection:
            await actions.resolve_failed(
                connection, self.place.catalogue, intent, by="ada", reason="the bank says so", version=version,
                know_it_did_not_happen=True,
            )  # fmt: skip

    # States of the server around it -----------------------------------------------------------------------------

    async def nobody_works(self, _: ConformanceWorld) -> None:
        """Here a worker works in steps only."""

    async def database_down(self, _: ConformanceWorld) -> None:
        await self.place.proxy.stop()

    async def database_back(self, world: ConformanceWorld) -> None:
        await self.place.proxy.listen()
        headers = [("Authorization", f"Bearer {self.place.target.token}".encode())]
        for _ in range(100):
            if (await world.client.send("GET", "/v1/intents", headers)).status == 200:
                return
            await asyncio.sleep(0.2)
        raise AssertionError("the API did not find its database again")

    async def restarted(self, _: ConformanceWorld) -> None:
        await self.place.stop()
        await self.place.start()

    async def restored(self, _: ConformanceWorld) -> None:
        await self.place.stop()
        try:
            await self.place.dump_and_restore()
        finally:
            await self.place.start()

    async def requests_used_up(self, world: ConformanceWorld) -> None:
        world.token = await self._next("greedy")
        await world.client.send("GET", "/v1/intents", [("Authorization", f"Bearer {world.token}".encode())])

    async def keys_used_up(self, world: ConformanceWorld) -> None:
        world.token = await self._next("hoarder")
        method, path, headers, body, _ = written({}, world, to=world.operation)
        assert (await world.client.send(method, path, headers, body)).status == 202

    async def token_revoked(self, world: ConformanceWorld) -> None:
        world.token = await self.place.token(TENANT, revoked=True)

    async def provider_drops(self, world: ConformanceWorld) -> None:
        self.place.bank.script(RequestMatch(key=self._provider_key(world)), ["act_then_drop"])

    async def provider_fails(self, world: ConformanceWorld) -> None:
        self.place.bank.script(RequestMatch(key=self._provider_key(world)), ["act_then_500"])

    async def provider_cuts(self, world: ConformanceWorld) -> None:
        self.place.bank.script(RequestMatch(key=self._provider_key(world)), ["cut_body"])

    async def worker_works(self, world: ConformanceWorld) -> None:
        await self._alone(world)
        await self._work()

    async def worker_is_killed(self, world: ConformanceWorld) -> None:
        acted = asyncio.Event()

        async def kill(_: Happening) -> None:
            worker.kill()
            acted.set()
            await worker.wait()

        self.place.bank.when("acted", RequestMatch(key=self._provider_key(world)), kill, times=1)
        await self._alone(world)
        worker = await self.place.idem("worker", "run", "--log-level", "warning")
        await asyncio.wait_for(acted.wait(), 60)
        await worker.communicate()
        await self._sql(TIME_PASSES, await self._intent(world))
        await self._sweep()
        await self._expect(world, "unknown")

    # What is counted --------------------------------------------------------------------------------------------

    async def effects(self, world: ConformanceWorld) -> int:
        """Payments made or declined by the bank under the keys that this client's key stands for."""
        mine = {
            str(keys.provider_key(self._secret, tenant, operation, world.key, 1, 1))
            for tenant in (TENANT, OTHER)
            for operation in self.place.catalogue.operations
        }
        return sum(payment.key in mine for payment in self.place.bank.log.payments())

    async def rows(self, world: ConformanceWorld) -> int:
        found = await self._rows("SELECT count(*) FROM idem.intents WHERE idempotency_key = %(k)s", k=world.key)
        return int(found[0][0])

    async def clean_up(self, world: ConformanceWorld) -> None:
        self._release.set()
        if self._call is not None:
            with contextlib.suppress(Exception):
                await self._call
            self._call = None
        self.place.bank.forget_script()
        with contextlib.suppress(OSError):
            await self.place.proxy.listen()

    # How --------------------------------------------------------------------------------------------------------

    async def _next(self, kind: str) -> str:
        self._limited[kind] += 1
        return await self.place.token(f"{kind}-{self._limited[kind]}")

    def _provider_key(self, world: ConformanceWorld) -> str:
        name = world.target.operations[world.operation].rpartition("/")[2]
        return str(keys.provider_key(self._secret, TENANT, name, world.key, 1, 1))

    async def _called(self, world: ConformanceWorld, fault: str, state: str) -> None:
        self.place.bank.script(RequestMatch(key=self._provider_key(world)), [fault])
        await self._alone(world)
        await self._work()
        await self._expect(world, state)

    async def _settle(self, world: ConformanceWorld, outcome: Outcome, answer: Answer | None) -> None:
        await self._alone(world)
        name, terms = lane_scopes(self.place.catalogue)["bank", "main"]
        async with self.place.database.connection() as connection:
            (row,) = await claims.claim(
                connection, name, token=uuid4(), holder="worker-1", lease=60, limit=1, now=clock.boottime()
            )
            report = Report(row.row, outcome, Seen(200), terms[row.row.operation], answer)
            await results.settle(connection, [report])

    async def _alone(self, world: ConformanceWorld) -> None:
        """Nobody else's row is due; this one is."""
        await self._sql(OTHERS_ARE_LATER, await self._intent(world))

    async def _work(self) -> None:
        async with stopping(Worker(self.place.database, self.place.catalogue, self.place.settings.worker)) as one:
            await one.run_once()

    async def _sweep(self) -> None:
        await Sweeper(self.place.database, self.place.catalogue, self.place.settings.sweeper).run_once()

    async def _intent(self, world: ConformanceWorld) -> UUID:
        """The newest of this key's, of this case's operation: a request that is under way has not been answered."""
        name = world.target.operations[world.operation].rpartition("/")[2]
        for _ in range(100):
            if found := await self._rows(NEWEST, k=world.key, o=name):
                return UUID(str(found[0][0]))
            await asyncio.sleep(0.1)
        raise AssertionError(f"no intent of {world.key}")

    async def _seen(self, world: ConformanceWorld) -> tuple[UUID, int]:
        """The intent, and its version, which a decision about it names."""
        intent = await self._intent(world)
        return intent, int((await self._rows("SELECT version FROM idem.intents WHERE id = %(i)s", i=intent))[0][0])

    async def _state(self, intent: UUID) -> str:
        return str((await self._rows("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent))[0][0])

    async def _expect(self, world: ConformanceWorld, state: str) -> None:
        assert await self._state(await self._intent(world)) == state

    async def _sql(self, statement: str, intent: UUID) -> None:
        async with self.place.database.connection() as connection, connection.transaction():
            # Moving time is no transition: the quiet time may go down with all the others.
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(statement, {"i": intent})

    async def _rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        async with self.place.database.connection() as connection:
            return await (await connection.execute(statement, parameters)).fetchall()


NEWEST = """
SELECT id FROM idem.intents WHERE idempotency_key = %(k)s AND operation = %(o)s ORDER BY id DESC LIMIT 1
"""
OTHERS_ARE_LATER = """
UPDATE idem.outbox SET available_at = statement_timestamp()
       + CASE WHEN intent_id = %(i)s THEN interval '0' ELSE interval '1 hour' END
 WHERE status IN ('pending', 'unfrozen')
"""
TOO_OLD = """
UPDATE idem.outbox SET start_before = statement_timestamp() - interval '1 second' WHERE intent_id = %(i)s
"""
TIME_PASSES = """
UPDATE idem.outbox SET available_at = available_at - interval '10 minutes',
       status_since = status_since - interval '10 minutes', claimed_at = claimed_at - interval '10 minutes',
       claimed_until = claimed_until - interval '10 minutes', first_sent_at = first_sent_at - interval '10 minutes',
       quiet_after = quiet_after - interval '10 minutes', redrive_at = redrive_at - interval '10 minutes'
 WHERE intent_id = %(i)s
"""
KEY_TIME_IS_OVER = """
UPDATE idem.idempotency_keys SET expires_at = statement_timestamp() - interval '1 second' WHERE intent_id = %(i)s
"""
A_MONTH_PASSES = """
UPDATE idem.idempotency_keys SET expires_at = expires_at - interval '31 days' WHERE intent_id = %(i)s
"""

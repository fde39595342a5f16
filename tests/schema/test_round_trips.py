"""How often the hot paths go to the server, counted in the protocol: Query and Sync messages of libpq's own trace."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fix_accept import Acceptor
from fix_spine import catalogue
from fix_sql import engine_of
from psycopg.pq import Trace
from sqlalchemy import Connection

from idem import Answer
from idem.decisions import Accepted, InProgress
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outcomes import Seen
from idem.outbox.settle import results
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.worker import claim
from idem.outbox.worker.claim import Claim
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Succeeded
from idem.reconciler import stored

pytestmark = pytest.mark.own_sessions
WARM = 8
"""Executions after which psycopg has prepared a statement on the connection."""
NOWHERE = "http://127.0.0.1:9"


class Trips:
    """Counts what happened on a connection between two polls."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._before = 0

    def _all(self) -> int:
        with open(self._path) as trace:
            lines = [line.split() for line in trace]
        return sum(1 for line in lines if line and line[0] == "F" and line[2] in ("Sync", "Query"))

    def since(self) -> int:
        now = self._all()
        count, self._before = now - self._before, now
        return count


@contextmanager
def traced(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Iterator[Trips]:
    with tempfile.NamedTemporaryFile("w") as file:
        connection.pgconn.trace(file.fileno())
        connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        yield Trips(file.name)
        connection.pgconn.untrace()


@pytest.fixture
def known() -> Catalogue:
    return catalogue(NOWHERE)


@pytest.fixture
def acceptor(known: Catalogue) -> Acceptor:
    return Acceptor(known.operations, known.providers)


@pytest.fixture
def caller(db_url: str) -> Iterator[Connection]:
    """An application's connection, in a transaction that is already open."""
    engine = engine_of(db_url)
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        yield connection


@pytest.mark.parametrize("warm", [WARM, 1])
def test_accept_is_one_round_trip(caller: Connection, acceptor: Acceptor, warm: int) -> None:
    driver: Any = caller.connection.driver_connection
    for number in range(warm):
        acceptor.accept(caller, "t", "pay.keyed", f"warm-{number}", {"amount": 1})
    with traced(driver) as trips:
        assert isinstance(acceptor.accept(caller, "t", "pay.keyed", "k", {"amount": 1}), Accepted)
        assert trips.since() == 1
        assert isinstance(acceptor.accept(caller, "t", "pay.keyed", "k", {"amount": 1}), InProgress)
        assert trips.since() == 1
        acceptor.accept(caller, "t", "pay.keyed", "large", {"amount": 1, "note": "x" * 200_000})
        assert trips.since() == 1


LANE = LaneScope("keyed", "keyed", NOWHERE, "test", ("pay.keyed",), concurrency=1000)


def fill(db_url: str, acceptor: Acceptor, count: int, prefix: str = "k") -> None:
    with engine_of(db_url).begin() as connection:
        for number in range(count):
            acceptor.accept(connection, "t", "pay.keyed", f"{prefix}{number}", {"amount": 1})


async def claimed(connection: psycopg.AsyncConnection[Any], limit: int, token: UUID | None = None) -> list[Claim]:
    return await claim.claim(
        connection, LANE, token=token or claim.new_token(), holder="w", lease=60, limit=limit, now=0.0
    )


def report(one: Claim, outcome: Outcome, known: Catalogue) -> results.Report:
    answer = Answer(201, b"{}") if isinstance(outcome, Succeeded) else None
    return results.Report(one.row, outcome, Seen(), known.require("pay.keyed"), answer)


OUTCOMES: tuple[Outcome, ...] = (Succeeded("pay_1"), Ambiguous(), NotExecuted("transport"), NotExecuted("request"))


@pytest.mark.parametrize(
    ("outcomes", "trips_to_settle"), [((Succeeded("pay_1"),), 1), (OUTCOMES[1:], 1), (OUTCOMES, 2)]
)
async def test_a_claim_and_the_settling_of_a_hundred_are_one_round_trip_each(
    database: Database, db_url: str, acceptor: Acceptor, known: Catalogue, outcomes: tuple[Outcome, ...],
    trips_to_settle: int,
) -> None:  # fmt: skip
    """The commonest end has a statement of its own, and every other kind the gate's."""
    fill(db_url, acceptor, 100 + len(outcomes) * WARM)
    async with database.connection() as connection:
        for n in range(len(outcomes) * WARM):
            (one,) = await claimed(connection, 1)
            await results.settle(connection, [report(one, outcomes[n % len(outcomes)], known)])
        with traced(connection) as trips:
            batch = await claimed(connection, 100)
            assert len(batch) == 100
            assert trips.since() == 1
            these = [report(one, outcomes[n % len(outcomes)], known) for n, one in enumerate(batch)]
            fates = await results.settle(connection, these)
            assert set(fates.values()) == {"settled"}
            assert trips.since() == trips_to_settle
            # What was given back may be due again by now.
            await claimed(connection, 100)
            assert trips.since() == 1


async def test_rows_that_do_not_fit_the_batch_cost_a_bounded_number_each(
    database: Database, db_url: str, acceptor: Acceptor, known: Catalogue
) -> None:
    """Settled again: each of the ten is looked up, found written, and left alone."""
    fill(db_url, acceptor, 60)
    per_row: list[float] = []
    async with database.connection() as connection:
        for size in (10, 40):
            batch = await claimed(connection, size)
            these = [report(one, Succeeded(f"pay_{n}"), known) for n, one in enumerate(batch)]
            await results.settle(connection, these)
            with traced(connection) as trips:
                fates = await results.settle(connection, these)
                assert set(fates.values()) == {"already"}
                per_row.append(trips.since() / size)
    assert max(per_row) <= 6


async def test_a_page_of_the_sweeper_costs_the_same_for_one_and_for_a_hundred(
    database: Database, db_url: str, acceptor: Acceptor, known: Catalogue
) -> None:
    fill(db_url, acceptor, 102)
    counts: list[int] = []
    async with database.connection() as connection:
        for size in (1, 1, 100):
            batch = await claimed(connection, size)
            await connection.execute(
                "UPDATE idem.outbox SET claimed_until = statement_timestamp() WHERE id = ANY (%s)",
                [[one.row.id for one in batch]],
            )
            with traced(connection) as trips:
                assert len(await sweep_expired(connection, known, batch=100)) == size
                counts.append(trips.since())
    # Pick, BEGIN, lock, read, read the stored proofs, write (in a savepoint), COMMIT. The first prepares its write.
    first, *others = counts
    assert len(set(others)) == 1
    assert first <= others[0] + 1 <= 10


async def test_a_pass_with_nothing_to_do_is_cheap(database: Database, known: Catalogue) -> None:
    async with database.connection() as connection:
        with traced(connection) as trips:
            assert await stored.apply_stored(connection, known, limit=100) == 0
            assert trips.since() == 1
            assert await stored.redrive(connection, known, limit=100) == 0
            assert trips.since() <= 3
            assert await results.settle(connection, []) == {}
            assert trips.since() == 0

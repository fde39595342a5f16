"""What an installation without work asks again and again: one statement for a look, and no transaction."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from fix_spine import Spine
from psycopg import AsyncConnection

from idem.outbox.database.bounded import BoundedConnection
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.values import clock
from idem.outbox.worker import claim
from idem.reconciler import due, stored
from idem.sweeper.doubted import end_doubted
from idem.sweeper.too_old import hold_too_old
from idem.sweeper.unasked import end_redrives

Poll = Callable[[AsyncConnection[Any], Spine], Awaitable[object]]


class Counting(BoundedConnection):
    """A connection that counts what it sends: statements, BEGIN and COMMIT."""

    sent = 0

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        self.sent += 1
        return await super().wait(*args, **kwargs)


async def claimed(connection: AsyncConnection[Any], spine: Spine) -> object:
    name, _ = lane_scopes(spine.catalogue)["keyed", "keyed"]
    return await claim.claim(
        connection, name, token=uuid4(), holder="worker-1", lease=30, limit=16, now=clock.boottime()
    )


async def claimed_for_lookup(connection: AsyncConnection[Any], spine: Spine) -> object:
    name, _ = lane_scopes(spine.catalogue)["keyed", "keyed"]
    contract = spine.catalogue.providers["keyed"].contract
    return await due.claim_due(
        connection, name, contract, token=uuid4(), holder="reconciler-1", lease=90, limit=4, now=clock.boottime()
    )


POLLS: dict[str, Poll] = {
    "claims": claimed,
    "look-ups": claimed_for_lookup,
    "stored proofs": lambda connection, spine: stored.apply_stored(connection, spine.catalogue, limit=100),
    "redrives": lambda connection, spine: stored.redrive(connection, spine.catalogue, limit=100),
    "leases": lambda connection, spine: sweep_expired(connection, spine.catalogue, batch=100),
    "queue": lambda connection, spine: hold_too_old(connection, spine.catalogue, batch=100),
    "doubted": lambda connection, spine: end_doubted(connection, spine.catalogue, batch=100),
    "ends of redrives": lambda connection, spine: end_redrives(connection, spine.catalogue, batch=100),
}


@pytest.mark.parametrize("poll", POLLS)
async def test_a_poll_that_finds_nothing_is_one_statement(spine: Spine, poll: str) -> None:
    async with await Counting.connect(spine.url, autocommit=True) as connection:
        await POLLS[poll](connection, spine)  # psycopg looks up types at first
        before = connection.sent
        assert not await POLLS[poll](connection, spine)
        assert connection.sent - before == 1

"""Real sessions that meet at one ordering key: concurrent accepts, and both orders of the lost wake-up (hazard 30)."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import fix_kept
import psycopg
import pytest
from fix_spine import Spine
from fix_sql import engine_of

from idem.decisions import Accepted
from idem.outbox.values.errors import StoreUnavailable

ACCEPTORS, EACH = 8, 12


def accept(spine: Spine, connection: Any, key: str, order: str = "o", amount: int = 100) -> UUID:
    decision = spine.acceptor.accept(connection, "t", "pay.keyed", key, {"amount": amount}, ordering_key=order)
    assert isinstance(decision, Accepted)
    return decision.intent_id


async def test_a_follower_that_commits_after_its_head_has_left_is_promoted_by_the_sweeper(spine: Spine) -> None:
    """The lost wake-up: the follower's accept saw the head, and the head's settlement did not see the follower."""
    spine.accepted("head", ordering_key="o")
    with engine_of(spine.url).connect() as connection:
        follower = accept(spine, connection, "follower")
        assert (await spine.work()).claimed == 1, "no settlement waits for the open transaction"
        connection.commit()
    assert await spine.status(follower) == "waiting"
    assert (await spine.sweep()).promoted == 1
    assert (await spine.work()).claimed == 1


async def test_a_follower_that_commits_before_its_head_leaves_is_promoted_with_it(spine: Spine) -> None:
    """The other order, with the same open transaction."""
    spine.accepted("head", ordering_key="o")
    with engine_of(spine.url).connect() as connection:
        follower = accept(spine, connection, "follower")
        connection.commit()
    await spine.work()
    assert await spine.status(follower) == "pending"


async def test_a_follower_that_looks_after_its_head_has_left_waits_for_nothing(spine: Spine) -> None:
    """The accept has its transaction, and so in READ COMMITTED no old snapshot, from before the head left."""
    spine.accepted("head", ordering_key="o")
    with engine_of(spine.url).connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM idem.outbox")
        await spine.work()
        follower = accept(spine, connection, "follower")
        connection.commit()
    assert await spine.status(follower) == "pending"


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_an_accept_with_an_old_snapshot_waits_for_the_sweeper(spine: Spine, isolation: str) -> None:
    """It cannot see what has committed since its snapshot: here a head, so that two would run at once."""
    engine = engine_of(spine.url)
    with engine.connect().execution_options(isolation_level=isolation) as connection:
        connection.exec_driver_sql("SELECT count(*) FROM idem.outbox")
        head = spine.accepted("head", ordering_key="o")
        follower = accept(spine, connection, "follower")
        connection.commit()
    assert (await spine.status(head), await spine.status(follower)) == ("pending", "waiting")
    assert (await spine.sweep()).promoted == 0
    await spine.work()
    assert await spine.status(follower) == "pending"
    with engine.connect().execution_options(isolation_level=isolation) as connection:
        alone = accept(spine, connection, "alone", "another")
        connection.commit()
    assert await spine.status(alone) == "waiting"
    assert (await spine.sweep()).promoted == 1


async def test_an_accept_waits_for_the_open_transaction_of_its_key_and_no_other(spine: Spine) -> None:
    """Documented: the order is that of the commits, so who comes second waits until the first has committed."""
    with engine_of(spine.url).connect() as first, engine_of(spine.url).connect() as second:
        accept(spine, first, "first")
        second.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
        accept(spine, second, "other", "another")
        with pytest.raises(StoreUnavailable, match="LockNotAvailable"):
            accept(spine, second, "second")
        second.rollback()
        first.rollback()
        free = accept(spine, second, "second")
        second.commit()
    assert await spine.status(free) == "pending"


async def test_the_settlement_passes_over_a_follower_that_another_session_holds(spine: Spine) -> None:
    spine.accepted("head", ordering_key="o")
    follower = spine.accepted("follower", ordering_key="o")
    last = spine.accepted("last", ordering_key="o")
    with psycopg.connect(spine.url) as other:
        other.execute("SELECT id FROM idem.outbox WHERE intent_id = %s FOR UPDATE", [follower])
        assert (await spine.work()).fates == {"settled": 1}
        assert (await spine.status(follower), await spine.status(last)) == ("waiting", "waiting"), "nobody jumps ahead"
        assert (await spine.sweep()).promoted == 0
    assert (await spine.sweep()).promoted == 1
    assert (await spine.status(follower), await spine.status(last)) == ("pending", "waiting")


async def test_a_head_and_its_follower_that_leave_at_once_promote_the_third_in_the_end(spine: Spine) -> None:
    head = spine.accepted("head", ordering_key="o")
    follower = spine.accepted("follower", ordering_key="o")
    third = spine.accepted("third", ordering_key="o")
    with psycopg.connect(spine.url) as other:
        # The cancel of the follower is under way, and not committed.
        other.execute("SET session_replication_role = replica")
        other.execute("DELETE FROM idem.outbox WHERE intent_id = %s", [follower])
        await spine.work()
        assert await spine.status(head) is None
        assert await spine.status(third) == "waiting"
    assert (await spine.sweep()).promoted == 1
    assert await spine.status(third) == "pending"


def _accepts(spine: Spine, number: int, order: Callable[[int], str], failed: list[BaseException]) -> None:
    try:
        with psycopg_engine(spine).connect() as connection:
            for n in range(EACH):
                with connection.begin():
                    accept(spine, connection, f"{number}-{n}", order(n), 100 + number)
                    if n % 5 == 4:
                        connection.exec_driver_sql("SELECT pg_sleep(0.005)")
    except BaseException as error:  # told by the test
        failed.append(error)


def psycopg_engine(spine: Spine) -> Any:
    return fix_kept.engine(spine.url)


async def test_eight_accepting_sessions_and_their_numbers_are_the_order_of_the_commits(spine: Spine) -> None:
    """The number of each row is larger than that of every row that was committed before its accept had the lock."""
    failed: list[BaseException] = []
    with engine_of(spine.url).connect() as connection:
        spine.acceptor.know(connection)
    threads = [
        threading.Thread(target=_accepts, args=(spine, number, lambda n: f"o{n % 2}", failed))
        for number in range(ACCEPTORS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    rows = await spine.all(
        "SELECT ordering_key, ordering_number, status, xmin::text::bigint AS transaction FROM idem.outbox"
        " ORDER BY ordering_key, ordering_number"
    )
    assert len(rows) == ACCEPTORS * EACH
    for order in ("o0", "o1"):
        mine = [row for row in rows if row["ordering_key"] == order]
        assert [row["status"] for row in mine] == ["pending"] + ["waiting"] * (len(mine) - 1)
        assert len({row["ordering_number"] for row in mine}) == len(mine)

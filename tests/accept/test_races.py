"""Two callers of one key, with real connections, each case named after what the loser hears.

No transaction here waits for another: `shop.open` lets nobody wait for a lock, so a wait fails and does not hang.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg
import pytest
from accept.shop import ANSWER, WRITTEN, Shop
from fix_sql import forced, query

from idem.decisions import Accepted, Decision, Expired, InProgress, Mismatch, Replay, Retrying
from idem.errors import RetryTransaction

T = TypeVar("T")
STRICT = pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """What `count` threads got that began together."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> T:
        barrier.wait(timeout=60)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def kinds(decisions: list[Decision]) -> Counter[str]:
    return Counter(type(decision).__name__ for decision in decisions)


def at_rest(shop: Shop, state: str, status: str | None) -> Accepted:
    first = shop.accepted()
    shop.put(first.intent_id, state, status)
    return first


def test_hazard_23_the_second_hears_in_progress_before_the_first_commits(shop: Shop) -> None:
    with shop.open() as first, shop.open() as second:
        accepted = shop.accept(first)
        assert isinstance(accepted, Accepted)
        assert shop.accept(second) == InProgress(None, None, 1.0)
        # The same of other content: there is nothing committed yet that it could be compared with.
        assert shop.accept(second, amount=7) == InProgress(None, None, 1.0)
        first.commit()
        # In the same transaction still, which nothing aborted.
        assert shop.accept(second) == InProgress(accepted.intent_id, "pending", 1.0)
        assert isinstance(shop.accept(second, amount=7), Mismatch)
        second.commit()
    assert shop.counts()["idem.intents"] == 1


def test_hazard_23_the_second_gets_the_key_when_the_first_rolls_back(shop: Shop) -> None:
    with shop.open() as first, shop.open() as second:
        shop.accept(first)
        assert isinstance(shop.accept(second), InProgress)
        first.rollback()
        assert isinstance(shop.accept(second), Accepted)
        second.commit()
    assert shop.counts()["idem.intents"] == 1


def test_hazard_23_the_first_that_died_open_frees_the_key(shop: Shop) -> None:
    with shop.open() as first, shop.open() as second:
        shop.accept(first)
        pid = first.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        assert isinstance(shop.accept(second), InProgress)
        second.exec_driver_sql("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        assert isinstance(shop.accept(second), Accepted)
        second.commit()
        first.invalidate()
    assert shop.counts()["idem.intents"] == 1


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_hazard_23_two_keys_in_opposite_order_are_no_deadlock(shop: Shop, order: tuple[str, str]) -> None:
    one, other = order
    with shop.open() as first, shop.open() as second:
        assert isinstance(shop.accept(first, one), Accepted)
        assert isinstance(shop.accept(second, other), Accepted)
        assert isinstance(shop.accept(first, other), InProgress)
        assert isinstance(shop.accept(second, one), InProgress)
        first.commit()
        second.commit()
    assert shop.counts()["idem.intents"] == 2


@pytest.mark.parametrize("winner_commits", [True, False])
@STRICT
def test_the_second_with_an_older_snapshot_runs_again_or_wins(shop: Shop, isolation: str, winner_commits: bool) -> None:
    with shop.open() as first, shop.open(isolation) as second:
        second.exec_driver_sql("SELECT count(*) FROM public.orders")
        shop.accept(first)
        if not winner_commits:
            assert isinstance(shop.accept(second), InProgress)
            first.rollback()
            assert isinstance(shop.accept(second), Accepted)
            second.commit()
        else:
            first.commit()
            with pytest.raises(RetryTransaction):
                shop.accept(second)
            second.rollback()
            assert isinstance(shop.accept(second), InProgress)
    assert shop.counts()["idem.intents"] == 1


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_hazard_56_two_retries_of_a_completed_key_both_get_the_answer(shop: Shop, isolation: str) -> None:
    """Though one of them holds its transaction open."""
    at_rest(shop, "completed", None)
    with shop.open(isolation) as first, shop.open(isolation) as second:
        for connection in (first, second):
            decision = shop.accept(connection)
            assert isinstance(decision, Replay) and decision.answer.body == ANSWER
        assert isinstance(shop.accept(second, amount=7), Mismatch)


def test_hazard_56_a_completed_key_is_answered_under_its_lock(shop: Shop) -> None:
    """Whoever holds the advisory lock of the key: a final answer needs none."""
    at_rest(shop, "completed", None)
    with psycopg.connect(shop.url) as other:
        other.execute(
            "SELECT pg_advisory_xact_lock(idem.key_lock(lock_seed, 't', 'pay.keyed', 'k')) FROM idem.installation"
        )
        assert isinstance(shop.once(), Replay)


def test_of_two_retries_at_rest_the_second_hears_in_progress(shop: Shop) -> None:
    accepted = at_rest(shop, "failed_retryable", "held")
    with shop.open() as first, shop.open() as second:
        assert shop.accept(first) == Retrying(accepted.intent_id)
        assert isinstance(shop.accept(second), InProgress)
        first.rollback()
        assert shop.accept(second) == Retrying(accepted.intent_id)
        second.commit()
        assert isinstance(shop.accept(first), InProgress)
    assert shop.rows("SELECT count(*) FROM idem.evidence WHERE kind = 'retried'") == [(1,)]


@STRICT
def test_of_two_retries_at_rest_the_one_with_the_older_snapshot_runs_again(shop: Shop, isolation: str) -> None:
    at_rest(shop, "failed_retryable", "held")
    with shop.open() as first, shop.open(isolation) as second:
        second.exec_driver_sql("SELECT count(*) FROM public.orders")
        assert isinstance(shop.accept(first), Retrying)
        first.commit()
        with pytest.raises(RetryTransaction):
            shop.accept(second)


def test_of_many_retries_at_rest_one_wins(shop: Shop) -> None:
    at_rest(shop, "failed_retryable", "held")
    assert kinds(at_once(12, lambda _: shop.once())) == {"Retrying": 1, "InProgress": 11}
    assert shop.rows("SELECT status, attempt FROM idem.outbox") == [("pending", 0)]
    assert shop.rows("SELECT count(*) FROM idem.evidence WHERE kind = 'retried'") == [(1,)]


def test_ib_126_fifty_requests_of_one_key_at_once(shop: Shop) -> None:
    """One is accepted, the others hear that it is running; none fails."""
    assert kinds(at_once(50, lambda _: shop.once())) == {"Accepted": 1, "InProgress": 49}
    counts = shop.counts()
    assert [counts[f"idem.{table}"] for table in WRITTEN] == [1] * len(WRITTEN)


def test_ib_126_fifty_requests_of_a_completed_key_at_once(shop: Shop) -> None:
    at_rest(shop, "completed", None)
    assert kinds(at_once(50, lambda _: shop.once())) == {"Replay": 50}


def test_requests_of_different_keys_do_not_meet(shop: Shop) -> None:
    assert kinds(at_once(20, lambda number: shop.once(f"k{number}"))) == {"Accepted": 20}


def test_ib_137_of_two_callers_after_expiry_one_is_the_new_operation(shop: Shop) -> None:
    old = at_rest(shop, "expired", None)
    assert kinds(at_once(2, lambda _: shop.once())) == {"Expired": 2}
    query(shop.url, "DELETE FROM idem.idempotency_keys")
    decisions = at_once(2, lambda _: shop.once())
    assert kinds(decisions) == {"Accepted": 1, "InProgress": 1}
    (new,) = (decision for decision in decisions if isinstance(decision, Accepted))
    assert new.intent_id != old.intent_id
    assert shop.rows("SELECT intent_id FROM idem.idempotency_keys") == [(new.intent_id,)]


def test_ib_137_callers_while_the_tombstone_goes(shop: Shop) -> None:
    """Before its end it is expired, after it new, and never both for one key."""

    def act(number: int) -> Decision | None:
        if number == 0:
            query(shop.url, "DELETE FROM idem.idempotency_keys WHERE state = 'expired'")
            return None
        return shop.once()

    for round in range(10):
        intent = shop.accepted(f"before-{round}").intent_id
        shop.put(intent, "expired")
        forced(shop.url, "UPDATE idem.idempotency_keys SET idempotency_key = 'k' WHERE intent_id = %s", [intent])
        decisions = [decision for decision in at_once(4, act) if decision is not None]
        assert all(isinstance(decision, Accepted | InProgress | Expired) for decision in decisions)
        assert kinds(decisions)["Accepted"] <= 1
        forced(shop.url, "DELETE FROM idem.idempotency_keys; DELETE FROM idem.outbox")

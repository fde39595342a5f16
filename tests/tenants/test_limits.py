"""Rates and active keys: what they allow, whom they never refuse, what they keep in memory."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from fix_api import client
from fix_spine import Spine
from hypothesis import given
from hypothesis import strategies as st

from idem.decisions import Accepted, Decision, Replay
from idem.outbox.accept.prepare import prepare
from idem.outbox.api.store import Store
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.domain.decisions import Limited
from idem.outbox.tenants import limits
from idem.outbox.tenants.limits import Bucket, TenantLimits


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def of(database: Any, clock: Clock | None = None, *, tenants: Any = None, **each: Any) -> TenantLimits:
    settings = ApiSettings.model_validate({"limits": each, "tenants": tenants or {}})
    return TenantLimits(database, settings, clock=clock or Clock())


async def ask(spine: Spine, limits: TenantLimits, key: str, tenant: str = "t") -> Decision | Limited:
    """What the API does with a request, as far as limits are concerned."""
    store = Store(spine.database, 5.0)
    prepared = prepare(
        spine.catalogue.operations, spine.catalogue.providers, await store.secret(),
        tenant=tenant, operation="pay.keyed", key=key, params={"amount": 100},
    )  # fmt: skip
    taken = limits.may_create(tenant) is None
    decided = await store.decide(prepared, may_create=taken)
    if taken:
        (limits.created if isinstance(decided, Accepted) else limits.not_created)(tenant)
    return decided


async def refreshed(limits: TenantLimits) -> None:
    """The tenant has asked, and the database has said how many keys it has."""
    limits.may_create("t")
    limits.not_created("t")
    await limits.refresh()


def test_without_limits_everything_is_allowed(database: Any) -> None:
    free = of(database)
    for _ in range(10_000):
        assert free.admit("t") is None
        assert free.may_create("t") is None


def test_a_burst_then_the_rate_and_each_tenant_for_itself(database: Any, clock: Clock) -> None:
    one = of(database, clock, requests=2, request_burst=5)
    assert [one.admit("a") for _ in range(5)] == [None] * 5
    assert one.admit("a") == pytest.approx(0.5)
    assert one.admit("b") is None
    clock.now += 0.5
    assert one.admit("a") is None
    assert one.admit("a") == pytest.approx(0.5)


def test_a_single_tenants_limits_hold_instead(database: Any, clock: Clock) -> None:
    one = of(
        database, clock, requests=1, request_burst=1,
        tenants={"big": {"requests": 100, "request_burst": 100}, "free": {}},
    )  # fmt: skip
    assert [one.admit("big") for _ in range(100)] == [None] * 100
    assert one.admit("big") is not None
    assert [one.admit("free") for _ in range(500)] == [None] * 500
    assert [one.admit("small") is None for _ in range(2)] == [True, False]


@given(
    rate=st.floats(0.01, 1000), burst=st.integers(1, 50),
    steps=st.lists(st.floats(0, 10), min_size=1, max_size=60),
)  # fmt: skip
def test_a_bucket_gives_at_most_burst_and_rate_and_true_waits(rate: float, burst: int, steps: list[float]) -> None:
    bucket, now, given_out = Bucket(rate, burst, 0.0), 0.0, 0
    for step in steps:
        now += step
        seconds = bucket.wait(now)
        if seconds == 0:
            bucket.consume(now)
            given_out += 1
            assert given_out <= burst + rate * now + 1e-6
        else:
            assert bucket.wait(now + seconds + 1e-6) < 1e-6
            now += seconds + 1e-6


def test_new_keys_are_taken_before_they_are_made_and_given_back_if_they_are_not(database: Any, clock: Clock) -> None:
    one = of(database, clock, new_keys=1, new_key_burst=2)
    for _ in range(10):
        assert one.may_create("t") is None
        one.not_created("t")
    assert [one.may_create("t") for _ in range(2)] == [None, None]  # at once, before either has been made
    refused = one.may_create("t")
    assert refused is not None and (refused.limit, refused.seconds) == ("new_keys", pytest.approx(1.0))
    assert refused.text
    one.created("t")
    one.not_created("t")
    assert one.may_create("t") is None
    assert one.may_create("t") is not None
    assert one.may_create("u") is None
    clock.now += 1.0
    assert one.may_create("t") is None


async def test_what_comes_at_once_is_held_too(spine: Spine) -> None:
    """Forty new keys at once over HTTP: as many as the burst are made, the others wait a second or two."""
    limits = {"new_keys": 0.01, "new_key_burst": 5}
    async with client(spine, settings=ApiSettings.model_validate({"port": 0, "limits": limits})) as one:
        answers = await asyncio.gather(*(one.ask(f"at-once-{number}") for number in range(40)))
        assert Counter(answer.status_code for answer in answers) == {202: 5, 429: 35}
        assert max(int(answer.headers["Retry-After"]) for answer in answers if answer.status_code == 429) <= 101
        known = next(number for number, answer in enumerate(answers) if answer.status_code == 202)
        assert (await one.ask(f"at-once-{known}")).status_code == 409
    [made] = await spine.all("SELECT count(*) AS made FROM idem.intents")
    assert made["made"] == 5


async def test_active_keys_at_once_are_held_too(spine: Spine, clock: Clock) -> None:
    one = of(spine.database, clock, active_keys=3)
    for _ in range(2):
        await refreshed(one)
    assert [one.may_create("t") is None for _ in range(5)] == [True] * 3 + [False] * 2


async def test_a_limit_never_refuses_a_known_key(spine: Spine, clock: Clock) -> None:
    one = of(spine.database, clock, new_keys=0.001, new_key_burst=1)
    assert isinstance(await ask(spine, one, "first"), Accepted)
    assert isinstance(await ask(spine, one, "second"), Limited)
    assert await spine.all("SELECT 1 FROM idem.intents WHERE idempotency_key = 'second'") == []
    assert not isinstance(await ask(spine, one, "first"), Limited)
    await spine.work()
    assert isinstance(await ask(spine, one, "first"), Replay)
    assert isinstance(await ask(spine, one, "second"), Limited)
    clock.now += 1000
    assert isinstance(await ask(spine, one, "second"), Accepted)


async def test_active_keys_are_limited_across_processes_and_freed_by_expiry(spine: Spine, clock: Clock) -> None:
    one, two = (of(spine.database, clock, active_keys=3) for _ in range(2))
    await ask(spine, one, "k0")
    await one.refresh()  # asks for the count
    await spine.sweep()  # counts
    for key in ("k1", "k2"):
        assert isinstance(await ask(spine, two, key), Accepted)
    for process in (one, two):
        await process.refresh()
        refused = process.may_create("t")
        assert refused is not None and refused.limit == "active_keys"
        assert "3 unexpired keys" in refused.text
        assert isinstance(await ask(spine, process, "k3"), Limited)
        assert not isinstance(await ask(spine, process, "k1"), Limited)
        assert process.may_create("another") is None
    await spine.work()
    await spine.all("UPDATE idem.idempotency_keys SET expires_at = statement_timestamp()"
                    " WHERE idempotency_key = 'k0' RETURNING 1")  # fmt: skip
    assert (await spine.sweep()).expired == 1
    for process in (one, two):
        await process.refresh()
        assert process.may_create("t") is None
        process.not_created("t")
    assert isinstance(await ask(spine, one, "k3"), Accepted)


async def test_what_this_process_makes_counts_at_once(spine: Spine, clock: Clock) -> None:
    one = of(spine.database, clock, active_keys=5)
    await refreshed(one)
    await refreshed(one)
    decided = [await ask(spine, one, f"k{n}") for n in range(8)]
    assert [isinstance(each, Accepted) for each in decided] == [True] * 5 + [False] * 3
    # The next look sees the same keys in the table, and counts none twice.
    await one.refresh()
    assert (one._keys["t"].seen, one._keys["t"].made) == (5, 0)


async def test_keys_that_others_make_in_sql_count_too(spine: Spine, clock: Clock) -> None:
    one = of(spine.database, clock, active_keys=2)
    await refreshed(one)
    for key in ("a", "b"):
        await asyncio.to_thread(spine.accepted, key)
    await refreshed(one)
    assert one.may_create("t") is not None


async def test_a_count_that_is_too_old_holds_nobody_up(spine: Spine, clock: Clock) -> None:
    one = of(spine.database, clock, active_keys=1)
    await refreshed(one)
    await asyncio.to_thread(spine.accepted, "a")
    await refreshed(one)
    assert one.may_create("t") is not None
    clock.now += limits.BELIEVED + 1
    assert one.may_create("t") is None


async def test_nobody_asks_the_database_where_no_tenant_has_such_a_limit(counted: Any, clock: Clock) -> None:
    one = of(counted, clock, requests=1, new_keys=1)
    for _ in range(100):
        one.admit("t")
        one.may_create("t")
    before = counted.wanted
    await one.refresh()
    await one.flush()
    assert counted.wanted == before


async def test_tenants_that_went_away_leave_nothing_in_memory(counted: Any, clock: Clock) -> None:
    one = of(counted, clock, requests=5, new_keys=5, active_keys=5)
    for number in range(5000):
        one.admit(f"t{number}")
        one.may_create(f"t{number}")
        one.created(f"t{number}")
        one.count(f"t{number}", limits.TenantCounter.REQUESTS)
    assert len(one._requests) == len(one._new_keys) == len(one._keys) == 5000
    one._forget()
    assert len(one._requests) == len(one._keys) == 5000  # still busy
    clock.now += 3600
    await one.flush()
    one._forget()
    assert not (one._requests or one._new_keys or one._keys or one._counts)

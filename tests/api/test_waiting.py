"""`Prefer: wait`: what a waiter hears, what waiting costs, and what a client that goes away changes (nothing)."""

import asyncio
from dataclasses import replace

import httpx
import layers
import pytest
from fix_api import Client, client
from fix_line import through_a_line
from fix_spine import Spine
from fix_waiters import waiters

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.providers.http import HttpProvider


async def waiting(spine: Spine, api: Client, number: int = 1) -> None:
    """Until so many wait."""
    while api.api.waiting < number:
        await asyncio.sleep(0.01)


async def test_the_first_and_its_duplicates_hear_the_same_bytes(api: Client, spine: Spine) -> None:
    asked = [asyncio.create_task(api.ask(wait=20)) for _ in range(5)]
    await waiting(spine, api, 5)
    await spine.work()
    answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert {answer.headers["Preference-Applied"] for answer in answers} == {"wait=20"}
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers].count(None) == 1
    assert spine.effects() == 1


async def test_a_wait_that_ends_too_soon_says_where_it_stands(api: Client, spine: Spine) -> None:
    first, second = await api.ask(wait=1), await api.ask(wait=1)
    assert (first.status_code, first.json()["status"]) == (202, "queued")
    assert (second.status_code, second.json()["code"]) == (409, "in_progress")
    await spine.work(faults=["act_then_drop"])
    assert await api.told(wait=1) == (409, "outcome_unknown")


async def test_a_wait_on_unknown_hears_what_the_reconciler_finds(api: Client, spine: Spine) -> None:
    spine.bank.script(None, ["act_then_drop"])
    await api.ask()
    await spine.work()
    asked = asyncio.create_task(api.ask(wait=20))
    await waiting(spine, api)
    await spine.reconcile(after=3600, hasten=True)
    assert (await asked).status_code == 201
    assert spine.effects() == 1


async def test_hazard_36_a_wait_that_ends_at_rest_hears_that_nothing_happened(spine: Spine) -> None:
    """503 `not_executed`: the same key, sent again, does it."""
    spine.know("pay.impatient", start_within=1, retry="client")
    async with client(spine) as api:
        asked = asyncio.create_task(api.ask(path="/v1/intents/pay.impatient", wait=20))
        await waiting(spine, api)
        await spine.execute("UPDATE idem.outbox SET start_before = statement_timestamp() - interval '1 s'")
        await spine.sweep()
        answer = await asked
        assert (answer.status_code, answer.json()["code"]) == (503, "not_executed")
        assert answer.headers["Retry-After"] == "1"
        # Waiting has only looked: the key is still at rest, and the next request takes it up.
        assert (await spine.key(api.intent(answer)))["state"] == "failed_retryable"
        assert (await api.ask(path="/v1/intents/pay.impatient")).status_code == 202


async def test_a_wait_hears_of_a_dead_letter(api: Client, spine: Spine) -> None:
    asked = asyncio.create_task(api.ask(amount=-5, wait=20))
    await waiting(spine, api)
    await spine.work()
    answer = await asked
    assert (answer.status_code, answer.json()["code"]) == (409, "needs_operator")
    assert (await api.ask(amount=-5)).json()["code"] == "needs_operator"


async def test_the_wait_is_capped(spine: Spine) -> None:
    async with client(spine, settings=ApiSettings(wait_cap=1)) as api:
        answer = await api.ask(wait=3600)
    assert answer.headers["Preference-Applied"] == "wait=1"


async def test_a_client_that_goes_away_changes_nothing(api: Client, spine: Spine) -> None:
    for n in range(20):
        asked = asyncio.create_task(api.ask(key=f"gone-{n}", wait=20))
        await waiting(spine, api)
        asked.cancel()
        while api.api.waiting:
            await asyncio.sleep(0.01)
    while (await spine.work()).claimed:
        pass
    assert spine.effects() == 20
    for n in range(20):
        assert (await api.ask(key=f"gone-{n}")).status_code == 201


async def test_sigterm_answers_those_who_wait(api: Client, spine: Spine) -> None:
    asked = asyncio.create_task(api.ask(wait=30))
    await waiting(spine, api)
    api.api.drain()
    assert (await asyncio.wait_for(asked, 10)).status_code == 202


async def test_an_outage_answers_503_when_the_wait_is_over(spine: Spine) -> None:
    """And those whose wait is longer are answered when the database is back."""
    async with through_a_line(spine) as (api, line):
        short = asyncio.create_task(api.ask(key="short", wait=2))
        long = asyncio.create_task(api.ask(key="long", wait=30))
        await waiting(spine, api, 2)
        line.down = True
        answer = await short
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        line.down = False
        await spine.work()
        assert (await long).status_code == 201


@pytest.mark.fuzz
async def test_waiters_cost_statements_by_the_second_not_by_the_head(spine: Spine) -> None:
    """A thousand in `make prove` who wait for five hundred keys: at most 20 statements a second for all of them."""
    many = 1000 if layers.thorough() else 100
    # They share this loop with the calls, which are not what is measured: no call misses its deadline for them.
    patient = {
        name: replace(known, contract=replace(known.contract, deadline=20))
        for name, known in spine.catalogue.providers.items()
        if isinstance(known, HttpProvider)
    }
    spine.catalogue = replace(spine.catalogue, providers=patient)
    async with (
        through_a_line(spine, pool=10, timeout=5, wait_cap=600) as (api, line),
        waiters(api, many, keys=many // 2) as asked,
    ):
        await asyncio.sleep(1)
        before, began = line.sent, asyncio.get_running_loop().time()
        await asyncio.sleep(5 if layers.thorough() else 2)
        assert 2 <= line.sent - before <= 20 * (asyncio.get_running_loop().time() - began)
        while (await spine.work()).claimed:
            pass
        answers: list[httpx.Response] = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {201}
    assert spine.effects() == many // 2

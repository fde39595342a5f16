"""A client of the HTTP API, after an outage and beside its own duplicate."""

import asyncio

from fix_api import Client
from fix_spine import Spine


async def test_the_first_request_after_a_restart_of_the_database_is_accepted(api: Client, spine: Spine) -> None:
    """IB-067: connections of the pool that ended while nothing happened are not handed to a request."""
    assert (await api.ask("before")).status_code == 202
    await spine.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name = 'idem-test-api' AND datname = current_database()"
    )
    assert (await api.ask("after")).status_code == 202


async def test_a_request_that_a_proxy_sends_twice_is_one(api: Client, spine: Spine) -> None:
    """IB-082: both reach the API at the same moment; one is accepted, and both name the same intent."""
    both = await asyncio.gather(api.ask("twice"), api.ask("twice"))
    assert sorted(answer.status_code for answer in both) == [202, 409]
    again = await api.ask("twice")
    known = {answer.json().get("intent") for answer in (*both, again)} - {None}
    assert len(known) == 1
    await spine.work()
    assert len(spine.bank.log.sends()) == 1


async def test_an_unknown_outcome_is_told_and_never_stored(api: Client, spine: Spine) -> None:
    """IB-130, IB-088: a time-out is no answer, and a client that asks too early changes nothing."""
    spine.bank.script(None, ["act_then_drop"])
    await api.ask("k")
    early = await api.ask("k")
    assert (early.status_code, early.json()["code"], "retry-after" in early.headers) == (409, "in_progress", True)
    await spine.work()
    for _ in range(3):
        told = await api.ask("k")
        assert (told.status_code, told.json()["code"], "retry-after" in told.headers) == (409, "outcome_unknown", True)
    assert await spine.all("SELECT FROM idem.idempotency_keys WHERE response_status IS NOT NULL") == []
    assert await spine.all("SELECT FROM idem.dead_letters") == []
    assert len(spine.bank.log.sends()) == 1

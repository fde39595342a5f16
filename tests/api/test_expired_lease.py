"""A claim whose lease is over is ended by whoever meets it, without a sweeper: a request, or `idem reconcile`."""

from typing import Any

from fix_api import Client
from fix_spine import Spine
from ledger.books import reconciler

LOST = """
UPDATE idem.outbox SET status = 'claimed', attempt = 1, claim_token = gen_random_uuid(), claimed_by = 'worker-dead',
       claimed_at = now() - interval '1 min', claimed_until = now() - interval '1 s',
       started_at = now() - interval '50 s', first_sent_at = now() - interval '1 min'
RETURNING id
"""


async def state(spine: Spine) -> tuple[Any, Any]:
    found = await spine.one("SELECT o.status, n.state FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id")
    return found["status"], found["state"]


async def test_a_request_that_meets_an_expired_lease_ends_it(api: Client, spine: Spine) -> None:
    assert (await api.ask()).status_code == 202
    await spine.all(LOST)
    assert await api.told() == (409, "outcome_unknown")
    assert await state(spine) == ("unknown", "unknown")
    (seen,) = await spine.all("SELECT source, holder, attempt FROM idem.evidence WHERE kind = 'swept'")
    assert (seen["source"], seen["holder"], seen["attempt"]) == ("api", "worker-dead", 1)
    await spine.reconcile(hasten=True)
    assert (await api.ask()).status_code == 201, "the reconciler could ask about it"


async def test_a_request_with_other_content_and_a_live_lease_end_nothing(api: Client, spine: Spine) -> None:
    await api.ask()
    await spine.all(LOST)
    assert (await api.ask(amount=7)).json()["code"] == "key_reused"
    assert await state(spine) == ("claimed", "in_progress")
    await spine.all("UPDATE idem.outbox SET claimed_until = now() + interval '1 min' RETURNING id")
    await api.ask()
    assert await state(spine) == ("claimed", "in_progress")


async def test_a_row_that_somebody_holds_is_left_and_the_client_is_answered(api: Client, spine: Spine) -> None:
    await api.ask()
    await spine.all(LOST)
    async with spine.database.connection() as other, other.transaction():
        await other.execute("SELECT FROM idem.outbox FOR UPDATE")
        assert (await api.ask()).json()["code"] == "outcome_unknown"
    assert await state(spine) == ("claimed", "in_progress")


async def test_reconcile_sweeps_before_it_asks(api: Client, spine: Spine) -> None:
    await api.ask()
    await spine.all(LOST)
    async with reconciler(spine) as one:
        assert await one.sweep() == 1
        await one.run_once(hasten=True)
    (seen,) = await spine.all("SELECT source FROM idem.evidence WHERE kind = 'swept'")
    assert seen["source"] == "reconciler"
    assert (await api.ask()).status_code == 201

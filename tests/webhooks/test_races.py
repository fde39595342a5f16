"""Events at the same moment as others, and as everybody else who settles: one transition, and no 5xx."""

import asyncio
import random
from collections import Counter
from uuid import UUID

import httpx
import layers
import pytest
from fix_desk import Desk
from fix_webhooks import KEYS, Hooks, event, serving, with_events

from idem.outbox.config.settings import ReconcilerSettings
from idem.outcomes import Succeeded
from idem.reconciler.daemon import Reconciler

ROUNDS = 200 if layers.thorough() else 40


async def completions(hooks: Hooks) -> Counter[UUID]:
    """How often each intent was completed, by the evidence."""
    rows = await hooks.spine.all("SELECT intent_id FROM idem.evidence WHERE to_state = 'completed'")
    return Counter(row["intent_id"] for row in rows)


async def test_ib_118_46_copies_ten_at_once_are_one_transition(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    content, gate = event(await hooks.key(intent)), asyncio.Semaphore(10)

    async def send() -> tuple[int, str]:
        async with gate:
            answer = await hooks.send(content)
            return answer.status_code, answer.json()["fate"]

    answers = Counter(await asyncio.gather(*(send() for _ in range(46))))
    assert answers == {(200, "applied"): 1, (200, "duplicate"): 45}
    assert await completions(hooks) == {intent: 1}
    assert await hooks.desk.state(intent) == ("completed", None)


async def test_different_events_of_one_call_at_once(hooks: Hooks) -> None:
    """Each has an id of its own, so the row's lock decides: who does not get it leaves a proof behind."""
    intent = await hooks.desk.unknown("k")
    content = event(await hooks.key(intent))
    answers = await asyncio.gather(*(hooks.send(content, f"evt_{n}") for n in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    fates = Counter(answer.json()["fate"] for answer in answers)
    assert fates["applied"] == 1
    assert set(fates) <= {"applied", "stored", "agrees"}
    await hooks.spine.reconcile()
    assert await completions(hooks) == {intent: 1}
    await hooks.spine.expect(intent, proofs=0, letters=[])


@pytest.mark.fuzz
async def test_ib_095_ib_114_a_look_and_an_event_again_and_again(desk: Desk) -> None:
    """One transition each, no 5xx, nothing missing, and nobody calls the provider's create endpoint again."""
    spine = desk.spine
    spine.catalogue = with_events(spine.catalogue, KEYS["first"])
    spine.bank.script(None, ["act_then_drop"] * ROUNDS)
    for n in range(ROUNDS):
        await asyncio.to_thread(spine.accepted, f"k{n}", operation="pay.keyless")
    for _ in range(60):
        if not (await spine.work()).claimed:
            break
    await spine.advance(10)
    await spine.execute("UPDATE idem.outbox SET available_at = now() + interval '1 day'")
    rows = await spine.all("SELECT id, intent_id, provider_key::text AS key FROM idem.outbox WHERE status = 'unknown'")
    assert len(rows) == ROUNDS == spine.effects()
    made = {payment.reference: payment.id for payment in spine.bank.log.payments()}
    sent = len(spine.bank.log.sends())
    reconciler = Reconciler(spine.database, spine.catalogue, ReconcilerSettings(lease=30), slots=4, margin=1)
    won: Counter[str] = Counter()
    span = 0.03
    async with (
        serving(spine.url, spine.catalogue) as url,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
    ):
        hooks = Hooks(desk, url, http)

        async def told(row: dict[str, str], number: int) -> str:
            await asyncio.sleep(random.random() * span)
            content = event(None, reference=made[row["key"]], status="succeeded")
            content["data"]["reference"] = row["key"]
            return await hooks.fate(content, f"evt_{number}", path="/webhooks/keyless")

        for number, row in enumerate(rows):
            await spine.execute("UPDATE idem.outbox SET available_at = now() WHERE id = %s", (row["id"],))
            _, fate = await asyncio.gather(reconciler.run_once(), told(row, number))
            won[fate] += 1
            span *= 1.3 if fate == "applied" else 0.8  # both are to win, on any machine
    await reconciler.run_once()
    await reconciler.close()
    assert set(won) <= {"applied", "agrees", "stored"}
    assert min(won["applied"], won["agrees"] + won["stored"]) > 0, won
    assert await completions(hooks) == {row["intent_id"]: 1 for row in rows}
    assert await spine.all("SELECT 1 FROM idem.proofs") == []
    assert await spine.all("SELECT 1 FROM idem.dead_letters") == []
    assert spine.effects() == ROUNDS
    assert len(spine.bank.log.sends()) == sent


async def test_a_claims_end_and_an_event_at_once(hooks: Hooks) -> None:
    """The worker reports while the event is being applied: one answer, and no proof is left over."""
    for number in range(25):
        intent = await hooks.desk.pending(f"k{number}")
        claimed = await hooks.desk.claim()
        content = event(await hooks.key(intent), reference=f"pay_{number}")
        _, fate = await asyncio.gather(
            hooks.desk.settle(claimed, Succeeded(f"pay_{number}")), hooks.fate(content, f"evt_{number}")
        )
        assert fate in ("stored", "agrees", "applied")
        await hooks.spine.reconcile()
        await hooks.expect(intent, ("completed", None), letters=[])
    assert set((await completions(hooks)).values()) == {1}
    assert await hooks.spine.all("SELECT 1 FROM idem.proofs") == []

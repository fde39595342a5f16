"""Who sees it first: events before the worker's report, a worker that dies between the answer and its settlement."""

import asyncio
import multiprocessing
import os
import signal
from typing import Any

import kill_worker
import pytest
from fix_line import settles, target, through
from fix_spine import Spine, catalogue
from fix_steps import claim_one
from fix_waiting import until
from fix_webhooks import FIRST, event, free_port, serving
from interim.shop import KINDS, Shop, acting, acting_at, body, redirect, use

from idem.testing.bank import Bank, BankAccount, BankSettings, Happening, ScriptStep, WebhookOrder
from idem.testing.bank.faults import BankFault, FaultName
from idem.testing.proxy import Direction, Proxy, ProxyAction

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["kill_worker", "interim.shop"])


async def both_came(spine: Spine) -> bool:
    return len(await spine.all("SELECT fate FROM idem.webhook_events")) == 2


async def told_during_the_call(shop: Shop, kind: str, *statuses: str) -> tuple[Any, list[str]]:
    """The bank's events come while the worker still waits for its answer, which says `requires_action`."""
    shop.spine.bank.script(None, ["requires_action:600"])
    intent = shop.api.intent(await shop.pay(kind))
    fates: list[str] = []

    async def tell(happening: Happening) -> None:
        assert happening.payment is not None
        for number, status in enumerate(statuses):
            action = {"type": "redirect", "url": redirect(happening.payment.id)}
            said = event(happening.payment.key, status, happening.payment.id, next_action=action)
            fates.append(await shop.hooks.fate(said, f"evt_{number}"))

    shop.spine.bank.when("acted", None, tell, times=1)
    await shop.spine.work()
    return intent, fates


@pytest.mark.parametrize("kind", KINDS)
async def test_the_event_comes_before_the_report(shop: Shop, kind: str) -> None:
    intent, fates = await told_during_the_call(shop, kind, "requires_action")
    assert fates == ["stored"]
    (payment,) = shop.spine.bank.log.payments()
    answer = await shop.pay(kind)
    told = body(answer)["interim"] if kind == "final" else body(answer)
    assert (answer.status_code, told["redirect"]) == (202 if kind == "final" else 201, redirect(payment.id))
    assert await shop.spine.all("SELECT id FROM idem.proofs") == []
    assert await shop.spine.letters(intent) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["succeeded", "declined"])
async def test_the_end_comes_before_the_report_of_the_beginning(shop: Shop, kind: str, end: str) -> None:
    """The customer was quick: what was seen later, of an earlier moment, takes nothing back."""
    intent, fates = await told_during_the_call(shop, kind, "requires_action", end)
    assert fates == ["stored", "stored"]
    answer = await shop.pay(kind)
    assert (answer.status_code, body(answer)["status"]) == (201 if end == "succeeded" else 402, end)
    assert (await shop.stored(intent))["object_end"] is None
    outcome = "succeeded" if end == "succeeded" else "refused"
    assert await shop.events(intent) == [("completed", outcome, False)]
    assert await shop.spine.letters(intent) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_claim_is_swept_that_left_an_open_proof(shop: Shop, kind: str) -> None:
    """The worker never came back; the event had been stored, and the sweeper folds it under the operation's terms."""

    intent = shop.api.intent(await shop.pay(kind))
    await claim_one(shop.spine, "keyed")
    said = event(await shop.hooks.key(intent), "requires_action", "pay_1", next_action={"url": redirect("pay_1")})
    assert await shop.hooks.fate(said) == "stored"
    await shop.spine.advance(60)
    await shop.spine.sweep()
    answer = await shop.pay(kind)
    assert (body(answer)["interim"] if kind == "final" else body(answer))["redirect"] == redirect("pay_1")
    assert (await shop.spine.row_if_any(intent) is None) is (kind == "exists")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_is_killed_between_the_answer_and_its_settlement(shop: Shop, kind: str) -> None:
    worker: list[Any] = []

    def watch(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server" and settles(data):
            os.kill(worker[0].pid, signal.SIGKILL)
            return "cut"
        return "pass"

    shop.spine.bank.script(None, ["requires_action:600"])
    intent = shop.api.intent(await shop.pay(kind))
    async with Proxy(target(shop.spine.url), watch) as line:
        arguments = (through(shop.spine.url, line), shop.spine.bank.url, acting_at)
        worker.append(processes.Process(target=kill_worker.run, args=arguments))
        worker[0].start()
        await asyncio.to_thread(worker[0].join, 60)
        assert worker[0].exitcode == -signal.SIGKILL
    assert await shop.spine.status(intent) == "claimed"
    for _ in range(3):
        await shop.spine.advance(200)
        await shop.spine.sweep()
        await shop.spine.reconcile(hasten=True)
    (payment,) = shop.spine.bank.log.payments()
    answer = await shop.pay(kind)
    assert (body(answer)["interim"] if kind == "final" else body(answer))["redirect"] == redirect(payment.id)
    assert shop.spine.effects() == 1
    assert await shop.spine.letters(intent) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_banks_own_events_from_the_beginning_to_the_end(shop: Shop, kind: str) -> None:
    """Sent by the bank itself, at its own moments: the end reaches the client in one kind, the shop in the other."""
    port = free_port()
    account = BankAccount("keyed", "keyed-token", webhook_url=f"http://127.0.0.1:{port}/webhooks/keyed",
                      webhook_secret=FIRST, webhook=WebhookOrder(copies=2))  # fmt: skip
    spine = shop.spine
    async with Bank(BankSettings(durable=False, require_auth=True, accounts=(account,))) as bank:
        bank.script(None, [ScriptStep(BankFault(FaultName.REQUIRES_ACTION, 2.0))])
        known = acting(catalogue(bank.url))
        use(spine, known)
        async with serving(spine.url, known, port=port):
            intent = await spine.sent(operation=f"pay.{kind}")
            await until(lambda: both_came(spine), seconds=20)
            await spine.reconcile()
    expected = [("completed", "succeeded", False)]
    if kind == "exists":
        expected = [("completed", "succeeded", True), ("later_fact", "succeeded", False)]
    assert await shop.events(intent) == expected
    assert await spine.letters(intent) == []

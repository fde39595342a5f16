"""The bank's own events, signed and sent by it over real HTTP to the running endpoint."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_accept import Acceptor
from fix_desk import Desk
from fix_spine import Spine, catalogue
from fix_waiting import until
from fix_webhooks import FIRST, free_port, serving, with_events

from idem.decisions import Replay
from idem.testing.bank import Bank, BankSettings, WebhookOrder
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.bank.records import WebhookSent


@dataclass
class Line:
    """A bank that sends events to us."""

    desk: Desk
    bank: Bank
    intent: UUID
    """What the client of key `k` wants."""

    @property
    def spine(self) -> Spine:
        return self.desk.spine

    async def events(self, count: int, *fates: str) -> list[dict[str, Any]]:
        """The stored events, once there are so many."""
        kept: list[dict[str, Any]] = []

        async def come() -> bool:
            kept[:] = await self.spine.all("SELECT event_id, fate FROM idem.webhook_events ORDER BY id")
            return len(kept) >= count

        await until(come)
        if fates:
            assert sorted(each["fate"] for each in kept) == sorted(fates), kept
        return kept


@contextlib.asynccontextmanager
async def line(desk: Desk, tmp_path: Path, order: WebhookOrder, *faults: str, **account: Any) -> AsyncIterator[Line]:
    """The spine over another bank, which knows the address of the endpoint before it starts and meets these faults."""
    port, spine = free_port(), desk.spine
    account = {"webhook_url": f"http://127.0.0.1:{port}/webhooks/keyed", "webhook_secret": FIRST, **account}
    settings = BankSettings(
        log=tmp_path / "line.jsonl", durable=False, require_auth=True, pending_seconds=0.5,
        accounts=(BankAccount("keyed", "keyed-token", webhook=order, **account),),
    )  # fmt: skip
    async with Bank(settings) as bank:
        known = catalogue(bank.url)
        desk.spine = replace(
            spine, bank=bank, catalogue=with_events(known), acceptor=Acceptor(known.operations, known.providers)
        )
        async with serving(spine.url, desk.spine.catalogue, port=port):
            if faults:
                bank.script(None, faults)
            yield Line(desk, bank, await desk.pending("k"))


async def heard(line: Line) -> None:
    """It is done, and the client's same request hears the operation's own answer about the bank's own object."""
    assert await line.desk.state(line.intent) == ("completed", None)
    (made,) = line.bank.log.payments()
    replay = await asyncio.to_thread(line.spine.accept, "k")
    assert isinstance(replay, Replay)
    assert json.loads(replay.answer.body) == {"intent": str(line.intent), "payment": made.id, "status": "succeeded"}


async def test_a_lost_answer_is_settled_by_the_event(desk: Desk, tmp_path: Path) -> None:
    async with line(desk, tmp_path, WebhookOrder(delay=0.5), "act_then_drop") as one:
        await one.spine.work()
        assert await desk.state(one.intent) == ("unknown", "unknown")
        await one.events(1, "applied")
        await heard(one)


async def test_an_early_event_meets_a_live_claim(desk: Desk, tmp_path: Path) -> None:
    """It comes while the call still hangs, and is folded when the call breaks."""
    async with line(desk, tmp_path, WebhookOrder(), "act_then_stall:10") as one:
        work = asyncio.create_task(one.spine.work())
        await one.events(1, "stored")
        assert await desk.state(one.intent) == ("in_progress", "claimed")
        await work
        await heard(one)


async def test_duplicated_events(desk: Desk, tmp_path: Path) -> None:
    async with line(desk, tmp_path, WebhookOrder(copies=5, delay=0.3), "act_then_drop") as one:
        await one.spine.work()
        await one.events(1, "applied")
        await until(lambda: len(sent(one)) >= 5)
        assert {each.status for each in sent(one)} == {200}
        assert len(await one.events(1)) == 1
        await heard(one)


def sent(one: Line) -> list[WebhookSent]:
    """What the bank has sent, by its own log."""
    return list(one.bank.log.webhooks)


async def test_a_late_event_corrects_what_was_at_rest(desk: Desk, tmp_path: Path) -> None:
    """Every look said absent, wrongly, and the client was told that nothing happened."""
    async with line(desk, tmp_path, WebhookOrder(delay=3), "act_then_500") as one:
        await one.spine.work()
        await one.spine.execute(
            "UPDATE idem.outbox SET status = 'held', first_sent_at = NULL;"
            "UPDATE idem.intents SET state = 'failed_retryable';"
            "UPDATE idem.idempotency_keys SET state = 'failed_retryable'"
        )
        await one.events(1, "applied")
        await heard(one)
        assert await one.spine.events(one.intent) == ["corrected"]


async def test_events_out_of_order(desk: Desk, tmp_path: Path) -> None:
    """The end comes before the beginning; the answer is that of the end, and nothing contradicts."""
    async with line(desk, tmp_path, WebhookOrder(hold=2, hold_seconds=5), "pending") as one:
        await one.spine.work()
        assert await desk.state(one.intent) == ("in_progress", "awaiting")
        kept = await one.events(2, "applied", "agrees")
        assert kept[0]["event_id"].endswith("_succeeded")
        await heard(one)
        assert await one.spine.letters(one.intent) == []


@pytest.mark.parametrize("secret", ["whsec_" + "A" * 43 + "="])
async def test_the_bank_with_another_secret_is_refused_and_comes_again(desk: Desk, tmp_path: Path, secret: str) -> None:
    async with line(desk, tmp_path, WebhookOrder(), webhook_secret=secret) as one:
        await one.spine.work()

        await until(lambda: len(sent(one)) >= 2)
        assert {each.status for each in sent(one)} == {401}
        assert await one.events(0) == []

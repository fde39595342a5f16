"""The bank's own events, signed and sent by it over real HTTP to the running endpoint."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_accept import Acceptor
from fix_desk import Desk
from fix_spine import Spine, catalogue
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

    @property
    def spine(self) -> Spine:
        return self.desk.spine

    async def events(self, count: int, *verdicts: str) -> list[dict[str, Any]]:
        """The stored events, once there are so many."""

        async def come() -> bool:
            return len(await self._kept()) >= count

        await until(come)
        kept = await self._kept()
        if verdicts:
            assert sorted(each["verdict"] for each in kept) == sorted(verdicts), kept
        return kept

    async def _kept(self) -> list[dict[str, Any]]:
        return await self.spine.all("SELECT event_id, verdict FROM idem.webhook_events ORDER BY id")


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    for _ in range(int(seconds * 50)):
        if await check():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"not within {seconds} s")


@contextlib.asynccontextmanager
async def line(desk: Desk, tmp_path: Path, order: WebhookOrder, **account: Any) -> AsyncIterator[Line]:
    """The spine over another bank, which knows the endpoint's address before it starts."""
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
            yield Line(desk, bank)


async def heard(line: Line, intent: UUID, status: str = "succeeded") -> None:
    """The client's same request hears the operation's own answer about the bank's own object."""
    (made,) = line.bank.log.payments()
    replay = await asyncio.to_thread(line.spine.accept, "k")
    assert isinstance(replay, Replay)
    assert json.loads(replay.answer.body) == {"intent": str(intent), "payment": made.id, "status": status}


async def test_a_lost_answer_is_settled_by_the_event(desk: Desk, tmp_path: Path) -> None:
    async with line(desk, tmp_path, WebhookOrder(delay=0.5)) as one:
        intent = await desk.pending("k")
        one.bank.script(None, ["act_then_drop"])
        await one.spine.work()
        assert await desk.state(intent) == ("unknown", "unknown")
        await one.events(1, "applied")
        assert await desk.state(intent) == ("completed", None)
        await heard(one, intent)
        assert one.spine.effects() == 1


async def test_an_early_event_meets_a_live_claim(desk: Desk, tmp_path: Path) -> None:
    """It comes while the call still hangs, and is folded when the call breaks."""
    async with line(desk, tmp_path, WebhookOrder()) as one:
        intent = await desk.pending("k")
        one.bank.script(None, ["act_then_stall:10"])
        work = asyncio.create_task(one.spine.work())
        await one.events(1, "stored")
        assert await desk.state(intent) == ("in_progress", "claimed")
        await work
        assert await desk.state(intent) == ("completed", None)
        await heard(one, intent)
        assert one.spine.effects() == 1


async def test_duplicated_events(desk: Desk, tmp_path: Path) -> None:
    async with line(desk, tmp_path, WebhookOrder(copies=5, delay=0.3)) as one:
        intent = await desk.pending("k")
        one.bank.script(None, ["act_then_drop"])
        await one.spine.work()
        await one.events(1, "applied")

        async def all_sent() -> bool:
            return len(sent(one)) >= 5

        await until(all_sent)
        assert {each.status for each in sent(one)} == {200}
        assert len(await one.events(1)) == 1
        await heard(one, intent)


def sent(one: Line) -> list[WebhookSent]:
    """What the bank has sent, by its own log."""
    return list(one.bank.log.webhooks)


async def test_a_late_event_corrects_what_was_at_rest(desk: Desk, tmp_path: Path) -> None:
    """Every look said absent, wrongly, and the client was told that nothing happened."""
    async with line(desk, tmp_path, WebhookOrder(delay=3)) as one:
        intent = await desk.pending("k")
        one.bank.script(None, ["act_then_500"])
        await one.spine.work()
        await one.spine.execute(
            "UPDATE idem.outbox SET status = 'held', first_sent_at = NULL;"
            "UPDATE idem.intents SET state = 'failed_retryable';"
            "UPDATE idem.idempotency_keys SET state = 'failed_retryable'"
        )
        await one.events(1, "applied")
        assert await desk.state(intent) == ("completed", None)
        await heard(one, intent)
        told = await one.spine.all("SELECT type FROM idem.events WHERE aggregateid = %(i)s", i=intent)
        assert [each["type"] for each in told] == ["corrected"]


async def test_events_out_of_order(desk: Desk, tmp_path: Path) -> None:
    """The end comes before the beginning; the answer is that of the end, and nothing contradicts."""
    async with line(desk, tmp_path, WebhookOrder(hold=2, hold_seconds=5)) as one:
        intent = await desk.pending("k")
        one.bank.script(None, ["pending"])
        await one.spine.work()
        assert await desk.state(intent) == ("in_progress", "awaiting")
        kept = await one.events(2, "applied", "agrees")
        assert kept[0]["event_id"].endswith("_succeeded")
        assert await desk.state(intent) == ("completed", None)
        await heard(one, intent)
        assert await one.spine.letters(intent) == []


@pytest.mark.parametrize("secret", ["whsec_" + "A" * 43 + "="])
async def test_the_bank_with_another_secret_is_refused_and_comes_again(desk: Desk, tmp_path: Path, secret: str) -> None:
    async with line(desk, tmp_path, WebhookOrder(), webhook_secret=secret) as one:
        await desk.pending("k")
        await one.spine.work()

        async def twice() -> bool:
            return len(sent(one)) >= 2

        await until(twice)
        assert {each.status for each in sent(one)} == {401}
        assert await one.events(0) == []

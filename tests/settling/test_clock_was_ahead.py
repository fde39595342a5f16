"""Nobody knows the moment of a send that lies ahead of the database's clock, not even when the clock has passed it: no
replay, no list of a window, and no redrive believes in it."""

from dataclasses import replace
from uuid import UUID

import psycopg
import pytest
from fix_clock import with_clock
from fix_spine import KEYED, Spine
from fix_steps import claim_due_row
from fix_waiting import stopping
from settling.asking import Asking
from settling.shop import asked, sends, serve, use

from idem.errors import OperatorRefused
from idem.outbox.domain.contract import LookupRule
from idem.outbox.settle import clock_ahead
from idem.outbox.settle.answer_rendering import Renderer
from idem.reconciler import due, settling
from idem.testing.bank import BankAccount as BankAccount

pytestmark = pytest.mark.own_sessions

HOUR, DAY = 3600, 86400
FAR = 2 * DAY
"""The clock is ahead by more than the provider remembers a key."""


async def sent(spine: Spine, *, by: int = FAR, acted: bool = True) -> UUID:
    """A call whose answer was lost, made by a real worker while the database's clock was so far ahead."""
    async with with_clock(spine, by):
        intent = await spine.sent(faults=["act_then_drop" if acted else "drop_before_acting"])
    assert (await spine.row(intent))["status"] == "unknown"
    return intent


async def pass_time(spine: Spine, seconds: float) -> None:
    """Time passes for the rows and for the provider; then every look is ordered."""
    await spine.advance(seconds)
    spine.bank.shift_clock(seconds)
    await spine.run(due.hasten, since=None)


async def mark(spine: Spine) -> int:
    """What a sweeper's pass marks."""
    return (await spine.sweep()).sent_ahead


def forgetful(spine: Spine) -> None:
    """A provider that can be asked by a replay alone, and that forgets a key after a day."""
    serve(spine, BankAccount("kept", "kept-token", retention=DAY))
    use(spine, lookups=False, operation={"give_up_after": 30.0 * DAY})


@pytest.mark.parametrize("passed", [DAY + HOUR, FAR + HOUR], ids=["while it lies ahead", "when its moment has passed"])
async def test_it_is_not_replayed(spine: Spine, passed: int) -> None:
    forgetful(spine)
    intent = await sent(spine)
    assert await mark(spine) == 1
    await pass_time(spine, passed)
    await spine.reconcile(times=3)
    assert len(sends(spine)) == spine.effects() == 1
    assert await spine.letters(intent) == ["not_settleable"]


async def test_what_was_sent_by_a_right_clock_is_replayed(spine: Spine) -> None:
    """And by one that was behind: its memory seems older than it is."""
    forgetful(spine)
    for by, replays in ((0, 1), (-HOUR, 1), (-2 * DAY, 0)):
        before = len(sends(spine))
        intent = spine.accepted(f"key{by}")
        spine.bank.script(None, ["act_then_drop"])
        async with with_clock(spine, by):
            # Accepted by the right clock, so that it is not too old for a worker.
            await spine.all("UPDATE idem.outbox SET available_at = statement_timestamp(),"
                            " start_before = statement_timestamp() + interval '30 d' RETURNING id")  # fmt: skip
            await spine.work()
        assert await mark(spine) == 0
        await pass_time(spine, HOUR)
        await spine.reconcile()
        assert len(sends(spine)) - before == 1 + replays
        assert ((await spine.key(intent))["state"] == "completed") == bool(replays)
    assert spine.effects() == 3


def listing(spine: Spine) -> None:
    """A provider that can be asked for a list of what was made since a time, and for nothing else."""
    use(spine, key=replace(KEYED.key, replay="success_only"))
    provider = spine.provider("keyed")
    path = "/payments?key={idem.key}&since={idem.sent_at}"
    look = provider.lookups[1].model_copy(update={"path": path})
    rule = LookupRule(by_key=True, horizon=10, agree=2)
    spine.change("keyed", lookups=(look,), contract=replace(provider.contract, lookup=rule))


@pytest.mark.parametrize(("by", "looked"), [(FAR, False), (0, True)])
async def test_no_list_since_then_proves_an_absence(spine: Spine, by: int, looked: bool) -> None:
    listing(spine)
    intent = await sent(spine, by=by, acted=bool(by))
    assert await mark(spine) == bool(by)
    await pass_time(spine, FAR + HOUR)
    for _ in range(4):
        await spine.reconcile()
        await pass_time(spine, 60)
    assert (asked(spine, "/payments", "GET") > 0) == looked
    await spine.expect(
        intent, key="unknown" if by else "failed_retryable", letters=["not_settleable"] if by else ["too_late"]
    )


async def test_a_redrive_needs_a_word_and_its_send_is_not_replayed_either(spine: Spine) -> None:
    forgetful(spine)
    intent = await sent(spine, acted=False)
    await mark(spine)
    await pass_time(spine, FAR + HOUR)

    with pytest.raises(OperatorRefused, match="the provider no longer remembers its key"):
        await spine.act("redrive", intent)
    await spine.act("redrive", intent, know_it_did_not_happen=True)
    await spine.work(faults=["act_then_drop"])
    await pass_time(spine, HOUR)
    await spine.reconcile()
    assert len(sends(spine)) == 2 and (await spine.row(intent))["status"] == "unknown"


async def test_what_was_asked_by_a_clock_that_was_ahead_is_not_late_enough(spine: Spine) -> None:
    """The clock goes back between a claim and what its look came to."""
    intent = await spine.sent(faults=["drop_before_acting"])
    await spine.all("UPDATE idem.outbox SET absences = 5 RETURNING id")
    async with stopping(Asking(spine)) as asking:
        async with with_clock(spine, HOUR):
            claim = await asking.claim(replay_first=False)
        answered = await asking.asker.ask(replace(claim, replay=False))
    terms = spine.catalogue.cautious("pay.keyed", "keyed")
    await settling.settle(spine.database, Renderer(), claim, answered, terms)
    assert (await spine.row(intent))["status"] == "unknown"


async def test_a_pass_marks_a_row_once_and_leaves_its_claim(spine: Spine) -> None:
    intent = await sent(spine)
    async with with_clock(spine, FAR):
        held = spine.accepted("held")
        await spine.all("UPDATE idem.outbox SET available_at = statement_timestamp() RETURNING id")
        await claim_due_row(spine)
        await spine.work(faults=["act_then_drop"])
    before, other = await spine.row(intent), await spine.row(held)
    assert before["claim_token"] is not None and other["first_sent_at"] is not None
    with psycopg.connect(spine.url) as session:
        session.execute("SELECT FROM idem.outbox WHERE id = %s FOR UPDATE", [other["id"]])
        assert await mark(spine) == 1, "and it waits for nobody"
        session.rollback()
    assert await mark(spine) == 1
    assert await mark(spine) == 0
    after = await spine.row(intent)
    assert {name for name in after if after[name] != before[name]} == {"first_sent_at"}
    (seen,) = await spine.all(
        "SELECT details FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'sent_ahead'", i=intent
    )
    assert seen["details"]["first_sent_at"][:10] == before["first_sent_at"].isoformat()[:10]


async def test_a_word_about_it_keeps_its_moment_unknown(spine: Spine) -> None:
    """At rest on a word, the row has no first send any more; the word's own moment is marked."""
    intent = await sent(spine)
    await spine.act("resolve_failed", intent, know_it_did_not_happen=True)
    assert (await spine.row(intent))["status"] == "held"
    assert await mark(spine) == 1
    (row,) = await spine.all(f"SELECT denied_sent_at = {clock_ahead.NEVER} AS never, first_sent_at FROM idem.outbox")
    assert row == {"never": True, "first_sent_at": None}

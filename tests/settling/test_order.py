"""The order of settling follows what a replay does at the provider (semantics 9), or what the contract says."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from fix_spine import KEYED, Spine
from settling.shop import cancels, count_lookups, sends, serve, use
from structlog.testing import capture_logs

from idem.decisions import Replay
from idem.outbox.domain.contract import CancelRule, Strategy
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outcomes import Absent, CouldNotAsk, LookupOutcome, Succeeded
from idem.reconciler import strategies
from idem.reconciler.lookup_claim import LookupClaim
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.bank.settings import SecondRequest as BankReplay

CONTRACT = replace(KEYED, cancel=CancelRule())


def taken(**changes: Any) -> LookupClaim:
    known = {"status": OutboxStatus.UNKNOWN, "state": KeyState.UNKNOWN, "token": uuid4(), "quiet_left": -1.0}
    columns = {name: changes.pop(name) for name in list(changes) if name in OutboxRow.__dataclass_fields__}
    row = OutboxRow(UUID(int=1), UUID(int=2), "pay", "bank", "main", attempt=1, provider_key="key", **known | columns)
    return replace(LookupClaim(row, False, None, 100.0), **changes)


def following(row: LookupClaim, done: dict[Strategy, LookupOutcome] | None = None, **changes: Any) -> Strategy | None:
    facts = {"askable": True, "sent": False, "burned": False, **changes}
    contract = facts.pop("contract", CONTRACT)
    return strategies.following(contract, row, done or {}, **facts)


@pytest.mark.parametrize(
    ("replay", "order"),
    [
        ("stored", ("replay", "lookup", "cancel_by_key")),
        ("current", ("replay", "lookup", "cancel_by_key")),
        ("success_only", ("lookup", "cancel_by_key")),
        ("none", ("lookup", "cancel_by_key")),
    ],
)
def test_the_order_follows_from_what_a_replay_does(replay: Any, order: tuple[Strategy, ...]) -> None:
    assert strategies.order(replace(KEYED, key=replace(KEYED.key, replay=replay))) == order
    assert strategies.order(replace(KEYED, strategies=("lookup", "replay"))) == ("lookup", "replay")


def test_a_floor_below_twice_the_margin_is_no_replay() -> None:
    short = replace(KEYED, key=replace(KEYED.key, retention=300))
    assert strategies.order(short)[0] == "lookup"


def test_a_proof_ends_the_take_and_a_cancel_does() -> None:
    last = taken(lookups=len(CONTRACT.schedule) - 1)
    assert following(last, {"lookup": Succeeded("pay_1")}) is None
    assert following(last, {"lookup": Absent()}) == "cancel_by_key"
    assert following(last, {"lookup": Absent(), "cancel_by_key": CouldNotAsk()}) is None


def test_a_cancel_is_made_only_for_what_nothing_before_it_decides() -> None:
    absent: dict[Strategy, LookupOutcome] = {"lookup": Absent()}
    last = len(CONTRACT.schedule) - 1
    assert following(taken(), absent) is None, "the look-ups have their chances first"
    assert following(taken(lookups=last), {"lookup": CouldNotAsk()}) is None, "the provider is not to be had"
    assert following(taken(), askable=False) == "cancel_by_key"
    assert following(taken(lookups=last, contradicted=True), absent) is None, "a proof is on record"
    assert following(taken(lookups=last, inline=True), absent) is None
    assert following(taken(lookups=last, status=OutboxStatus.AWAITING), absent) is None
    assert following(taken(lookups=last), absent, contract=KEYED) is None
    first = replace(CONTRACT, strategies=("cancel_by_key", "lookup"))
    assert following(taken(), contract=first) == "cancel_by_key", "as the contract says"


def test_a_cancel_that_blocks_no_late_request_waits_until_nothing_can_arrive_after_it() -> None:
    stones = replace(CONTRACT, cancel=CancelRule(blocks_late_requests=True))
    for quiet in (None, 5.0):
        assert following(taken(quiet_left=quiet), askable=False) is None
        assert following(taken(quiet_left=quiet), askable=False, contract=stones) == "cancel_by_key"
    assert following(taken(), askable=False, sent=True) is None, "this take's own replay may arrive after it"


def test_what_may_act_late_is_cancelled_only_where_that_blocks_late_requests() -> None:
    late = replace(CONTRACT, late_effects=True)
    row = taken(server_error=True, absences=1, lookups=len(CONTRACT.schedule) - 1)
    assert following(row, {"lookup": Absent()}, contract=late) is None
    stones = replace(late, cancel=CancelRule(blocks_late_requests=True))
    for absences, way in ((1, "cancel_by_key"), (0, None)):
        once = replace(row, row=replace(row.row, lookups=1, absences=absences))
        assert following(once, {"lookup": Absent()}, contract=stones) == way


def test_after_a_cancel_only_another_one_says_what_is_there() -> None:
    sent = taken(cancel_sent=True, key_burned=True)
    assert following(sent) == "cancel_by_key"
    assert following(replace(sent, row=replace(sent.row, quiet_left=5.0))) is None, "no look is believed meanwhile"


@pytest.mark.parametrize("kind", ["keyed", "keyless"])
async def test_where_a_replay_could_execute_there_is_none(spine: Spine, kind: str) -> None:
    """Every fault that leaves it open: the bank's log shows one send for each intent, and no cancel."""
    if kind == "keyed":
        serve(spine, BankAccount("risky", "risky-token", replay=BankReplay.SUCCESS_ONLY))
        use(spine, key=replace(KEYED.key, replay="success_only"), cancel=CancelRule())
    assert spine.catalogue.providers[kind].contract.replays is False
    faults = ["act_then_drop", "act_then_500", "act_then_reset", "cut_body", "broken_body"]
    for n, fault in enumerate(faults):
        await spine.sent(f"k{n}", operation=f"pay.{kind}", faults=[fault])
    await spine.reconcile(after=700, times=3)
    assert len(sends(spine)) == spine.effects() == len(faults)
    assert cancels(spine) == 0
    for n, fault in enumerate(faults):
        assert isinstance(spine.accept(f"k{n}", operation=f"pay.{kind}"), Replay), fault


async def test_a_contract_may_put_the_look_before_the_replay(spine: Spine) -> None:
    """Then a replay is an attempt only when it is made."""
    use(spine, strategies=("lookup", "replay"))
    intent = await spine.sent(faults=["act_then_drop"])
    spine.bank.script({"method": "GET"}, ["503"])
    assert dict((await spine.reconcile(after=10)).settled) == {"replay:succeeded": 1}
    kinds = await spine.all("SELECT kind, attempt, details FROM idem.evidence WHERE source = 'reconciler'")
    assert [(each["kind"], each["attempt"]) for each in kinds] == [("replay", 2)]
    assert kinds[0]["details"]["tried"][0]["how"] == "lookup"
    second = await spine.sent("k2", faults=["act_then_drop"])
    assert dict((await spine.reconcile(after=10)).settled) == {"lookup:succeeded": 1}
    attempts = "SELECT attempt FROM idem.evidence WHERE source = 'reconciler' AND intent_id = %(i)s"
    assert await spine.column(attempts, i=second) == [1]
    assert intent != second
    assert len(sends(spine)) == 3


async def test_a_replay_that_comes_second_obeys_the_retention_guard(spine: Spine) -> None:
    use(spine, strategies=("lookup", "replay"))
    intent = await spine.sent(faults=["act_then_drop"])
    spine.bank.script({"method": "GET"}, ["503"] * 5)
    await spine.reconcile(after=KEYED.key.retention - KEYED.key.margin + 1)
    assert len(sends(spine)) == 1
    assert count_lookups(spine) == 1
    assert (await spine.row(intent))["attempt"] == 1


async def test_a_replay_comes_first_and_the_look_after_it(spine: Spine) -> None:
    intent = await spine.sent(faults=["act_then_drop", "503"])
    assert dict((await spine.reconcile(after=10)).settled) == {"lookup:succeeded": 1}
    seen = await spine.one("SELECT details FROM idem.evidence WHERE kind = 'lookup'")
    tried = [(each["how"], each["outcome"], each["http_status"]) for each in seen["details"]["tried"]]
    assert tried == [("replay", "could_not_ask", 503)]
    assert await spine.letters(intent) == []


async def test_the_log_says_why_an_answer_proves_nothing(spine: Spine) -> None:
    spine.accepted()
    spine.bank.script({"method": "GET"}, ["401"] * 9)
    await spine.work(faults=["act_then_drop", *["401"] * 9])
    await spine.advance(10)
    with capture_logs() as lines:
        await spine.reconcile()
    (line,) = [each for each in lines if each["event"] == "lookup"]
    assert (line["result"], line["why"]) == ("could_not_ask", "the question failed (HTTP 401)")

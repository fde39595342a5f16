"""A gateway that answers in the provider's place, after the provider has acted or not: `answers_carry` tells whose an
answer is.

The gateway is a real one between idem and the bank. It lets every request through and keeps the bank's answer.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from fix_spine import KEYED, Spine, lookup
from fix_waiting import stopping
from settling import shop

from idem.outbox.calls.lane import Lane
from idem.outbox.calls.lookup_pages import ListFailed
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.domain.contract import CancelRule, Response
from idem.outbox.providers.account_rule import AccountCheck
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.listing import Listing
from idem.outbox.values import clock
from idem.outcomes import Absent, Ambiguous, CouldNotAsk
from idem.sending import Question
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.providers import Line

HEADER = "Bank-Request"
PAGE = b"<html><head><title>Request blocked</title></head></html>"
ITS_SHAPE = json.dumps({"error": {"code": "not_found", "message": "no route"}}).encode()
NOTHING = b'{"data":[]}'
DOUBTED = (403, 404, 407, 421, 431, 501, 505, 511)
"""Statuses that the table of outcomes takes for a mistake of the configuration."""


@dataclass
class Gateway:
    """What it answers instead of the bank: to writes and to questions; nothing: the bank's own answer passes."""

    url: str = ""
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    questions: tuple[int, bytes] | None = None
    asked: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)

    def rewrite(self, method: str, _target: str, answer: tuple[int, list[tuple[str, str]], bytes]) -> object:
        if method == "GET":
            self.asked += 1
            instead = self.questions
        else:
            instead = self.writes.pop(0) if self.writes else None
        if instead is None:
            return answer
        return instead[0], [("content-type", "application/json"), *self.headers], instead[1]


@pytest.fixture
def gateway(spine: Spine) -> Iterator[Gateway]:
    """In front of an account whose every answer has the header."""
    spine.bank.add_account(BankAccount("own", "own-token", answers_carry=HEADER))
    found = Gateway()
    with Line(spine.bank.url, found.rewrite) as line:  # type: ignore[arg-type]
        found.url = line.url
        yield found


def through(spine: Spine, gateway: Gateway, *, carried: bool, **contract: object) -> HttpProvider:
    """The provider behind the gateway; it is asked, and nothing is sent to it again without need."""
    promised = replace(KEYED, key=replace(KEYED.key, replay="none"), answers_carry=HEADER if carried else None)
    spine.change("keyed", contract=replace(promised, **contract), lookups=(lookup("key"),))  # type: ignore[arg-type]
    shop.account(spine, origin=gateway.url, credentials={"authorization": "Bearer own-token"})
    return spine.provider("keyed")


async def test_what_a_gateway_says_after_the_provider_has_acted_is_settled_by_a_look(
    spine: Spine, gateway: Gateway
) -> None:
    through(spine, gateway, carried=True)
    gateway.writes = [(status, PAGE if status % 2 else ITS_SHAPE) for status in (*DOUBTED, 200)]
    intents = [spine.accepted(f"k{status}") for status in (*DOUBTED, 200)]
    spine.settings = WorkerSettings(lease=30, margin=1, slots=3)  # the gateway's own queue is short
    for _ in intents:
        await spine.work()
    rows = [await spine.row(intent) for intent in intents]
    assert [row["status"] for row in rows] == ["unknown"] * len(intents)
    notes = {
        row["details"]["note"] for row in await spine.all("SELECT details FROM idem.evidence WHERE source = 'worker'")
    }
    assert notes == {f"not the provider's own answer: it lacks the header {HEADER}"}
    await spine.reconcile(after=200)
    assert [(await spine.key(intent))["state"] for intent in intents] == ["completed"] * len(intents)
    assert spine.effects() == len(intents)


@pytest.mark.parametrize("status", [403, 501])
async def test_without_the_setting_the_table_of_outcomes_decides(spine: Spine, gateway: Gateway, status: int) -> None:
    """The call goes back to the queue: behind such a gateway a provider without keys would act twice."""
    through(spine, gateway, carried=False)
    gateway.writes = [(status, PAGE)]
    intent = await spine.sent()
    assert (await spine.row(intent))["status"] == "pending"


LOOKUPS: dict[str, tuple[int, bytes]] = {
    "an empty list": (200, NOTHING),
    "not found, in the provider's shape": (404, ITS_SHAPE),
    "a page": (403, PAGE),
}


@pytest.mark.parametrize("carried", [True, False])
async def test_what_a_gateway_says_of_a_question_is_no_absence(spine: Spine, gateway: Gateway, carried: bool) -> None:
    """Without the setting two empty lists prove that nothing was executed, and the call is made again."""
    through(spine, gateway, carried=carried)
    gateway.writes, gateway.questions = [(403, PAGE) if carried else (500, PAGE)], LOOKUPS["an empty list"]
    intent = await spine.sent()
    await spine.reconcile(after=200, hasten=True, times=4)
    assert gateway.asked >= 2
    gateway.questions = None
    if carried:
        await spine.expect(intent, status="unknown", lookups=0)
        await spine.reconcile(after=4000, hasten=True)
    await spine.work()
    assert (await spine.key(intent))["state"] == "completed"
    assert len(shop.sends(spine)) == (1 if carried else 2)


@pytest.mark.parametrize("shape", LOOKUPS)
async def test_every_kind_of_question_counts_as_failed(spine: Spine, gateway: Gateway, shape: str) -> None:
    """A look, a cancel, the account check and the list; and the lane takes it for a provider that is not reached."""
    provider = through(spine, gateway, carried=True, listed=True, cancel=CancelRule())
    provider = replace(
        provider, cancels=shop.CANCEL, account_question=AccountCheck(path="/payments", at=("error", "code")),
        ledger=Listing(path="/payments?since={idem.since}", items=("data",)),
    )  # fmt: skip
    question = Question("0b5f9b7e-2f3a-8c1d-9e4f-112233445566", None, awaiting=False)
    gateway.questions, gateway.writes = LOOKUPS[shape], [LOOKUPS[shape]]
    ends = clock.boottime() + 60

    async def look() -> object:
        return (await lane.ask(question, lease_ends=ends))[0]

    async with stopping(Lane(provider, provider.accounts["keyed"], slots=2, margin=0.5)) as lane:
        assert await look() == CouldNotAsk()
        assert (await lane.cancel(question, lease_ends=ends))[0] == CouldNotAsk()
        named, seen = await lane.whose()
        assert named is None and HEADER in (seen.note or "")
        with pytest.raises(ListFailed, match=HEADER):
            async for _ in lane.list(0, 100):
                pass
        for _ in range(5):
            await look()
        assert lane.breaker.openings == 1, "questions that reach nobody open the breaker"
        gateway.questions = None
    async with stopping(Lane(provider, provider.accounts["keyed"], slots=2, margin=0.5)) as free:
        assert (await free.ask(question, lease_ends=ends))[0] == Absent(), "the provider's own word counts as before"
        assert (await free.cancel(question, lease_ends=ends))[0] == Absent()


async def test_a_gateway_that_keeps_every_answer_stops_the_lane(spine: Spine, gateway: Gateway) -> None:
    """Each such call becomes an unknown, so it must end somewhere."""
    provider = through(spine, gateway, carried=True)
    gateway.writes = [(403, PAGE)] * 30
    request, said = spine.catalogue.operations["pay.keyed"].request({"amount": 1}), []
    async with stopping(Lane(provider, provider.accounts["keyed"], slots=1, margin=0.5)) as lane:
        for number in range(12):
            frozen, ends = provider.freeze(request, f"key-{number}"), clock.boottime() + 60
            said.append((await lane.send(number, frozen, lease_ends=ends, start=lambda: True))[0])
    assert said[:10] == [Ambiguous()] * 10
    assert Ambiguous() not in said[10:], "the breaker is open, and nothing more is sent"
    assert spine.effects() == 10


@pytest.mark.parametrize("carried", [True, False])
async def test_what_a_cache_has_kept_is_no_answer_to_a_later_question(
    spine: Spine, gateway: Gateway, carried: bool
) -> None:
    """A copy has the provider's own header, and says what was true before the call was made."""
    through(spine, gateway, carried=carried)
    gateway.writes, gateway.questions = [(500, PAGE)], LOOKUPS["an empty list"]
    gateway.headers = [("age", "7"), (HEADER, "req-1")]
    intent = await spine.sent()
    await spine.reconcile(after=200, hasten=True, times=4)
    row = await spine.row(intent)
    assert (row["status"], row["absences"], gateway.asked >= 2) == ("unknown", 0, True)
    (note,) = {
        each["details"]["note"] for each in await spine.all("SELECT details FROM idem.evidence WHERE kind = 'lookup'")
    }
    assert note == "not a current answer of the provider: a cache has kept it for 7 s (header Age)"
    gateway.headers = [("age", "0"), (HEADER, "req-2")]
    await spine.advance(4000)
    await spine.reconcile(after=4000, hasten=True, times=2)
    assert (await spine.row(intent))["status"] != "unknown", "an answer that was checked just now counts"


@pytest.mark.parametrize("age", ["", "x", "-1", "0", "+3", "1.5", "\u0661"])
def test_an_age_that_says_nothing_keeps_no_answer_from_counting(age: str) -> None:
    response = Response(200, {"Age": age}, NOTHING)
    assert KEYED.own(response, asked=True) == response


@pytest.mark.parametrize("age", ["1", " 60 ", "9" * 5000])
def test_a_kept_answer_counts_for_a_call_and_not_for_a_question(age: str) -> None:
    response = Response(200, {"age": age}, NOTHING)
    assert KEYED.own(response) == response
    kept = KEYED.own(response, asked=True)
    assert (kept.complete, kept.reached, kept.kept_for) == (False, False, int(age.strip()[:9]))

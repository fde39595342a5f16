"""How much of the provider's memory is left is one rule: in SQL, in Python, and in each statement that asks for it."""

import json
import math
import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from fix_spine import CONTRACT, KEYED, Spine
from fix_steps import claim, claim_due
from settling.shop import use

from idem.decisions import Retrying
from idem.outbox.domain.contract import Contract, KeyRule
from idem.outbox.operator import ages, listing, locking
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.settle.replay_window import memory_left, time_left
from idem.outbox.values import clock
from idem.reconciler import attempts

ROOT = Path(__file__).parent.parent.parent
HOUR = 3600
EDGE = 100
"""Seconds on either side of an end at which no slow machine can make one of the other."""


def remembers(seconds: float) -> Contract:
    """A contract whose replays are harmless for this long."""
    rule = KeyRule("header", "idempotency-key", "stored", retention=seconds, margin=0) if seconds else KeyRule()
    return replace(CONTRACT, key=rule)


BOTH = """
SELECT idem.memory_age(x.sent, x.doubted) AS age,
       idem.memory_left(x.sent, x.doubted, x.promised, x.stated) AS left
  FROM (SELECT statement_timestamp() - make_interval(secs => r.sent) AS sent,
               statement_timestamp() - make_interval(secs => r.doubted) AS doubted, r.promised, r.stated
          FROM jsonb_to_recordset(%(rows)s::jsonb)
               AS r (sent float8, doubted float8, promised integer, stated float8)) AS x
"""


async def test_sql_and_python_say_the_same_of_every_row(spine: Spine) -> None:
    random = Random(7)
    # What lies ahead of the clock by more than a minute was sent at a time that is not known; by less, it was sent now.
    moments = [None, -3e8, -61.0, -10.0, 0.0, 0.5, 60.0, 7200.0, 86400.0, *(random.uniform(0, 3e6) for _ in range(6))]
    windows = [0, 1, 7020, 7200, 86220, 2_592_000]
    rows = [
        {"sent": sent, "doubted": doubted, "promised": promised, "stated": stated}
        for sent, doubted, promised, stated in product(moments, moments, windows, [None, *windows])
    ]
    found = await spine.all(BOTH, rows=json.dumps(rows))
    assert len(found) == len(rows) > 5000
    for row, said in zip(rows, found, strict=True):
        since = [row[name] for name in ("sent", "doubted") if row[name] is not None]
        age = math.inf if min(since, default=0.0) < -60 else max(since, default=None)
        assert said["age"] == (pytest.approx(age, abs=1e-5) if since else None)
        contract = None if row["stated"] is None else remembers(float(row["stated"]))
        assert said["left"] == memory_left(row["promised"], said["age"], contract), row


@dataclass(frozen=True)
class Case:
    """A row: both windows, and how long ago it was sent and doubted, in seconds."""

    promised: int
    stated: int
    sent: float | None
    doubted: float | None

    @property
    def left(self) -> float:
        since = max(moment for moment in (self.sent, self.doubted) if moment is not None)
        return min(self.promised, self.stated) - since


WINDOWS = [(2 * HOUR, 5 * HOUR), (5 * HOUR, 2 * HOUR), (2 * HOUR, 2 * HOUR)]
MOMENTS = [
    (sent, doubted)
    for inside, outside in [(2 * HOUR - EDGE, 2 * HOUR + EDGE)]
    for sent, doubted in [
        (inside, None), (outside, None), (None, inside), (None, outside), (60.0, outside), (outside, 60.0),
        (inside, 60.0), (60.0, inside),
    ]
]  # fmt: skip


async def placed(spine: Spine, status: str, cases: list[Case]) -> dict[UUID, Case]:
    """A row of this status for each case; what the guards of the tables would refuse is written without them."""
    placed = {}
    for number, case in enumerate(cases):
        intent = spine.accepted(f"k{number}")
        await spine.forced(
            "UPDATE idem.outbox SET status = %(status)s, replay_window = %(promised)s,"
            " first_sent_at = statement_timestamp() - make_interval(secs => %(sent)s),"
            " doubted_since = statement_timestamp() - make_interval(secs => %(doubted)s) WHERE intent_id = %(intent)s",
            status=status, promised=case.promised, sent=case.sent, doubted=case.doubted, intent=intent,
        )  # fmt: skip
        placed[(await spine.row(intent))["id"]] = case
    state = {"unknown": "unknown", "held": "failed_retryable"}.get(status, "in_progress")
    for table in ("intents", "idempotency_keys"):
        await spine.forced(f"UPDATE idem.{table} SET state = %(state)s", state=state)
    return placed


def stating(spine: Spine, seconds: int) -> Contract:
    """The contract states this memory now."""
    rule = replace(KEYED.key, retention=seconds + KEYED.key.margin)
    return use(spine, lookups=False, key=rule)


@pytest.mark.parametrize(("promised", "stated"), WINDOWS)
@pytest.mark.parametrize("first", [True, False])
async def test_a_take_and_the_beginning_of_a_replay_ask_for_it(
    spine: Spine, promised: int, stated: int, first: bool
) -> None:
    contract = stating(spine, 6 * HOUR)
    rows = await placed(spine, "unknown", [Case(promised, stated, *both) for both in MOMENTS if both[0] is not None])
    contract = stating(spine, stated)
    now = clock.boottime()
    taken = await claim_due(spine, limit=100, now=now, replay_first=first)
    assert {each.row.id for each in taken} == set(rows)
    for each in taken:
        left = rows[each.row.id].left
        assert each.replay == (left > 0), rows[each.row.id]
        assert each.send_by - now == pytest.approx(left, abs=EDGE / 2)
        if not first:
            begun = await spine.run(attempts.begin_replay, each, contract)
            assert (begun is not None) == (left > 0), rows[each.row.id]


@pytest.mark.parametrize(("promised", "stated"), WINDOWS)
async def test_a_claim_and_the_sweeper_ask_for_it(spine: Spine, promised: int, stated: int) -> None:
    stating(spine, 6 * HOUR)
    rows = await placed(spine, "pending", [Case(promised, stated, *both) for both in MOMENTS if both[0] is None])
    stating(spine, stated)
    now = clock.boottime()
    claimed = await claim(spine, limit=100)
    assert {each.row.id for each in claimed} == {row for row, case in rows.items() if case.left > 0}
    for each in claimed:
        assert each.send_by - now == pytest.approx(rows[each.row.id].left, abs=EDGE / 2)
    await spine.sweep()
    unknown = await spine.all("SELECT id FROM idem.outbox WHERE status = 'unknown'")
    assert {row["id"] for row in unknown} == {row for row, case in rows.items() if case.left <= 0}


async def test_a_client_s_retry_asks_for_it(spine: Spine) -> None:
    """In SQL only what was promised is known; the claim asks for what the contract states."""
    use(spine, operation={"retry": "client"})
    cases = [Case(2 * HOUR, 2 * HOUR, *both) for both in MOMENTS if both[0] is None]
    rows = await placed(spine, "held", cases)
    for number, case in enumerate(rows.values()):
        assert isinstance(spine.accept(f"k{number}"), Retrying) == (case.left > 0), case


@pytest.mark.parametrize(("promised", "stated"), WINDOWS)
async def test_an_operator_a_metric_and_a_list_tell_of_it(spine: Spine, promised: int, stated: int) -> None:
    contract = stating(spine, 6 * HOUR)
    rows = await placed(spine, "unknown", [Case(promised, stated, *both) for both in MOMENTS if both[0] is not None])
    contract = stating(spine, stated)
    near = pytest.approx
    for intent in await spine.all("SELECT intent_id, id FROM idem.outbox"):
        case = rows[intent["id"]]
        (found,) = await spine.run(read_locked, [intent["id"]])
        held = await spine.run(locking.snapshot, intent["intent_id"])
        shown = await spine.run(listing.intent, intent["intent_id"])
        terms = spine.catalogue.cautious("pay.keyed", "keyed")
        assert memory_left(found.row.replay_window, found.row.memory_age, contract) == near(case.left, abs=EDGE / 2)
        if case.doubted is not None:
            assert time_left(found.row, terms) == near(case.left, abs=EDGE / 2)
        assert held is not None and shown is not None
        assert held.window_left(terms) == near(max(0.0, case.left), abs=EDGE / 2)
        promise = replace(case, stated=case.promised).left
        assert shown["row"]["replay_window_left"] == near(promise, abs=EDGE / 2)
    (told,) = (await spine.run(ages.ages, spine.catalogue.memories))["outbox"]
    (row_s_own,) = (await spine.run(ages.ages))["outbox"]
    assert told["replay_window_left"] == near(min(case.left for case in rows.values()), abs=EDGE / 2)
    promises = [replace(case, stated=case.promised).left for case in rows.values()]
    assert row_s_own["replay_window_left"] == near(min(promises), abs=EDGE / 2)


OWN_RULE = re.compile(
    r"(first_sent_at|doubted_since)\)?\s*[-<>]=?\s*statement_timestamp"
    r"|statement_timestamp\(\)\s*[-<>]=?\s*(\w+\()?(\w+\.)?(first_sent_at|doubted_since)"
    r"|(least|epoch FROM)\s*\(?\s*(\w+\.)?(first_sent_at|doubted_since|denied_sent_at)"
    r"|secs\s*=>\s*[^)]*replay_window|[-+]\s*(\w+\.)?replay_window\b|replay_window\b\s*[-+]"
)
"""A place that reckons with the times and the window of a row by itself."""


def test_no_other_place_reckons_by_itself() -> None:
    assert OWN_RULE.search("AND c.first_sent_at > statement_timestamp()\n - make_interval(secs => c.replay_window)")
    assert OWN_RULE.search("extract(epoch FROM coalesce(o.first_sent_at, o.doubted_since) - statement_timestamp())")
    folders = ("outbox", "reconciler", "sweeper", "cli", "migrations", "idem")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sql")]
    assert len(files) > 200
    found = {
        str(path.relative_to(ROOT)): hit.group()
        for path in files
        if "build" not in path.parts and (hit := OWN_RULE.search(path.read_text()))
    }
    assert found == {}

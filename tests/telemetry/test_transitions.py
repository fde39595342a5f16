"""One line a change of state, with all that names it and nothing that must not stand there."""

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from fix_desk import Desk
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from idem.decisions import Accepted, InProgress, Retrying
from idem.outbox.domain.outcomes import Seen, failure
from idem.outbox.domain.transition import Evidence
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.settle import decide
from idem.outbox.settle.proofs import change_one
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Succeeded

KEY = "customer@example.org"
HASH = hashlib.sha256(KEY.encode()).hexdigest()[:16]
EVIDENCE = """
SELECT intent_id::text AS intent, attempt, source, kind, from_state, to_state, from_status, to_status
  FROM idem.evidence
 WHERE (from_state IS DISTINCT FROM to_state OR from_status IS DISTINCT FROM to_status) AND source <> 'accept'
 ORDER BY id
"""
FIELDS = ("intent", "attempt", "source", "kind", "from_state", "to_state", "from_status", "to_status")


def transitions(lines: Any) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == "transition" and line["kind"] != "claimed"]


def told(line: dict[str, Any]) -> tuple[Any, ...]:
    line = line | {"to_status": None if line["to_status"] == "gone" else line["to_status"]}
    return tuple(line[name] for name in FIELDS)


async def recorded(desk: Desk) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in FIELDS) for row in await desk.spine.all(EVIDENCE)]


async def test_every_change_on_record_has_one_line_of_its_own(desk: Desk) -> None:
    spine = desk.spine
    with capture_logs() as lines:
        await desk.completed(KEY)
        await desk.after("given-back", NotExecuted("given_back"))
        await desk.held("rejected")
        unknown = await desk.unknown("unknown")
        await spine.reconcile(hasten=True)
        await spine.reconcile(after=600, hasten=True)
        await desk.awaiting("awaiting")
        await desk.live("swept")
        await spine.sweep(after=31)
        cancelled = await desk.pending("cancelled")
        await desk.act("cancel", cancelled)
        await desk.act("redrive", unknown) if (await desk.state(unknown))[0] == "failed_retryable" else None
        await spine.all("UPDATE idem.idempotency_keys SET expires_at = created_at RETURNING 1 AS x")
        await spine.sweep()
    moved = transitions(lines)
    on_record = await recorded(desk)
    assert sorted(map(str, map(told, moved))) == sorted(map(str, on_record))
    sources = {line["source"] for line in moved}
    assert {"worker", "reconciler", "sweeper", "operator"} <= sources
    assert {line["tenant"] for line in moved} == {"t"}
    assert {line["operation"] for line in moved} == {"pay.keyed"}
    assert HASH in {line["key_hash"] for line in moved}
    assert KEY not in str(lines)


async def test_the_claim_is_told_for_those_who_want_everything(desk: Desk) -> None:
    await desk.pending("k")
    with capture_logs() as lines:
        await desk.spine.work()
    (claim,) = [line for line in lines if line.get("kind") == "claimed"]
    assert (claim["log_level"], claim["from_status"], claim["to_status"]) == ("debug", "pending", "claimed")


async def test_what_is_rolled_back_is_not_told(desk: Desk) -> None:
    intent = await desk.unknown("k")
    row = await desk.spine.row(intent)
    terms = desk.spine.catalogue.require("pay.keyed")
    letters = REGISTRY.get_sample_value("idem_dead_letters_total", {"reason": "too_late"}) or 0.0

    async def settle(*, fail: bool) -> None:
        async with desk.spine.database.connection() as connection, after_commit.transaction(connection):
            done = await change_one(
                connection, row["id"],
                lambda found: decide.verdict(found.row, about_it(), terms, redrive=False),
            )  # fmt: skip
            assert done is not None
            if fail:
                raise ZeroDivisionError

    with capture_logs() as lines:
        with pytest.raises(ZeroDivisionError):
            await settle(fail=True)
        assert transitions(lines) == []
        await settle(fail=False)
    assert [line["to_state"] for line in transitions(lines)] == ["failed_retryable"]
    assert REGISTRY.get_sample_value("idem_dead_letters_total", {"reason": "too_late"}) == letters + 1


def about_it() -> Evidence:
    return Evidence("operator", "resolved_failed", details={"by": "ada", "reason": "ticket 7"})


async def test_an_unknown_is_counted_when_it_begins_and_when_it_ends(desk: Desk) -> None:
    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    lane = {"provider": "keyed", "account": "keyed"}
    scheduled = value("idem_reconcile_total", **lane, event="scheduled")
    resolved = value("idem_reconcile_total", **lane, event="resolved")
    replays = value("idem_settled_total", how="replay", state="completed")
    waited = value("idem_settle_seconds_sum", how="replay")
    await desk.after("k", Ambiguous())
    await desk.spine.reconcile(after=200, hasten=True)
    assert value("idem_reconcile_total", **lane, event="scheduled") == scheduled + 1
    assert value("idem_reconcile_total", **lane, event="resolved") == resolved + 1
    assert value("idem_settled_total", how="replay", state="completed") == replays + 1
    assert 200 <= value("idem_settle_seconds_sum", how="replay") - waited < 300


def test_accept_tells_of_what_it_changed_and_of_nothing_else() -> None:
    intent = uuid4()
    with capture_logs() as lines:
        telemetry.accepted("t", "pay.keyed", KEY, Accepted(intent, datetime.now(UTC)))
        telemetry.accepted("t", "pay.keyed", KEY, Retrying(intent))
        telemetry.accepted("t", "pay.keyed", KEY, InProgress(intent, "pending", 1.0))
    assert [(line["from_state"], line["to_state"]) for line in lines] == [
        (None, "in_progress"), ("failed_retryable", "in_progress"),
    ]  # fmt: skip
    assert {(line["tenant"], line["key_hash"], line["intent"]) for line in lines} == {("t", HASH, str(intent))}
    assert KEY not in str(lines)


@pytest.mark.parametrize(
    ("outcome", "seen", "word"),
    [
        (Succeeded("pay_1"), Seen(200), "none"),
        (Pending("pay_1"), Seen(202), "none"),
        (NotExecuted("given_back"), Seen(note="the breaker is open"), "given_back"),
        (NotExecuted("transport"), Seen(error="ConnectTimeout"), "no_connection"),
        (NotExecuted("throttled"), Seen(429), "throttled"),
        (NotExecuted("request"), Seen(422), "client_error"),
        (Ambiguous(), Seen(503), "server_error"),
        (Ambiguous(), Seen(302), "redirect"),
        (Ambiguous(), Seen(200), "unreadable"),
        (Ambiguous(), Seen(error="ReadTimeout"), "timeout"),
        (Ambiguous(), Seen(error="RemoteProtocolError"), "connection_lost"),
        (Ambiguous(), Seen(error="SomethingOfTheirOwn"), "other"),
    ],
)
def test_failures_have_classes(outcome: Outcome, seen: Seen, word: str) -> None:
    assert failure(outcome, seen) == word

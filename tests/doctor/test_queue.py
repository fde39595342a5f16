"""Nothing stays unsettled in silence (P5): ages against limits, lanes that stand still, rows that nobody serves."""

from collections.abc import Callable
from pathlib import Path

import pytest
from doctor.conftest import Doctor, edit
from fix_desk import Desk

from idem.cli.doctor import queue
from idem.outcomes import NotExecuted, Succeeded

HOUR, DAY = 3600.0, 86400.0
LANE = (
    "INSERT INTO idem.lanes (provider, account, paused, paused_by, reason) VALUES ('keyed', 'keyed', true, 'ada', 'r')"
)


@pytest.mark.parametrize(
    ("make", "limit", "what"),
    [
        ("pending", 15 * 60.0, "pending: the oldest of 1 row is due for"),
        ("live", 60.0 + 30, "claimed: the oldest of 1 row is past its lease for"),
        ("unknown", 2 * HOUR, "unknown: the oldest of 1 row is unknown for"),
        ("awaiting", 3 * DAY, "awaiting: the oldest of 1 row is awaiting for"),
        ("held", 7 * DAY, "held: the oldest of 1 row is held for"),
    ],
)
async def test_hazard_45_the_oldest_has_a_limit(desk: Desk, doctor: Doctor, make: str, limit: float, what: str) -> None:
    await getattr(desk, make)("k")
    await desk.spine.advance(limit - (230 if make == "unknown" else 30))
    assert [each["level"] for each in await doctor("queue")] == ["ok"]
    await desk.spine.advance(90)
    (found,) = await doctor("queue")
    assert found["level"] == "error" and found["what"].startswith(what), found
    assert "keyed/keyed" in found["what"]
    if make in ("pending", "unknown"):
        desk.environment["IDEM_DOCTOR_" + {"pending": "QUEUED"}.get(make, make.upper())] = "90d"
        assert [each["level"] for each in await doctor("queue")] == ["ok"]


async def test_many_rows_of_one_kind_hide_no_other(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at rest grow old and stay: the doctor must still see a claim, a queue and an unknown behind them."""
    monkeypatch.setattr(queue, "MOST", 3)
    kinds = ("held", "awaiting", "live", "pending")
    for make in kinds:
        for n in range(4):
            await getattr(desk, make)(f"{make}-{n}")
    await desk.spine.advance(30 * DAY)
    found = await doctor("queue")
    errors = {each["what"].split(":")[0] for each in found if each["level"] == "error"}
    assert errors == {"held", "awaiting", "claimed", "pending"}
    cut = [each["what"] for each in found if each["level"] == "warning"]
    assert cut == [
        f"at least 3 rows are {kind}; doctor read only the oldest 3"
        for kind in ("asked about", "at rest", "claimed", "queued")
    ]


async def test_a_row_that_waits_for_its_back_off_is_not_late(desk: Desk, doctor: Doctor) -> None:
    await desk.pending("k")
    await desk.spine.advance(DAY / 2)
    await desk.spine.all("UPDATE idem.outbox SET available_at = now() + interval '1 hour' RETURNING 1")
    assert [each["level"] for each in await doctor("queue")] == ["ok"]


async def test_the_replay_window_runs_out_before_it_is_over(desk: Desk, doctor: Doctor) -> None:
    """24 h of retention, less flight limit and pause allowance (3 min): 2 h are left after 21 h 57 min."""
    await desk.unknown("k")
    await desk.spine.advance(21 * HOUR)
    await doctor.finds("replay_window", "ok", "2h")
    await desk.spine.advance(HOUR)
    await doctor.finds("replay_window", "error", "1 unknown row can be replayed for at most 1h 5")


async def test_a_paused_lane_is_a_warning_until_it_was_forgotten(desk: Desk, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("paused")] == ["ok"]
    await desk.pending("k")
    await desk.spine.advance(2 * HOUR)
    await desk.spine.all(LANE + " RETURNING 1")
    found = await doctor.finds("paused", "warning")
    assert "keyed/keyed" in found["what"] and "by ada (r); 1 row waits there" in found["what"]
    # It grows old on purpose.
    assert [each["level"] for each in await doctor("queue")] == ["ok"]
    await desk.spine.all("UPDATE idem.lanes SET changed_at = now() - interval '25 hours' RETURNING 1")
    assert [each["level"] for each in await doctor("paused")] == ["error"]


Edit = Callable[[str], str]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.replace('operations."pay.keyed"', 'operations."pay.other"'), "operation pay.keyed is not"),
        (
            lambda t: t.replace("providers.keyed", "providers.bank").replace('"keyed"\na', '"bank"\na'),
            "provider keyed is not configured",
        ),
        (
            lambda t: t.replace("accounts.keyed", "accounts.new").replace('account = "keyed"', 'account = "new"'),
            "account keyed of provider keyed is not configured",
        ),
        (
            lambda t: t.replace("http://127.0.0.1:", "http://127.0.0.2:"),
            "but account keyed of keyed is now http://127.0.0.2",
        ),
    ],
)
async def test_hazard_8_unserved_rows(desk: Desk, doctor: Doctor, configuration: Path, change: Edit, why: str) -> None:
    """IB-041: a row whose provider is not configured stays visible, and it is said why."""
    await desk.unknown("u")
    await desk.pending("p")
    assert [each["level"] for each in await doctor("unserved")] == ["ok"]
    edit(configuration, change)
    (found,) = await doctor("unserved")
    assert found["level"] == "error" and why in found["what"], found
    assert found["what"].startswith("2 open rows")
    assert (await desk.cli("doctor")).code == 1


async def test_hazard_33_rows_of_a_newer_format_are_named(desk: Desk, doctor: Doctor) -> None:
    await desk.pending("p")
    await desk.spine.all("UPDATE idem.outbox SET format_version = 9 RETURNING 1")
    await doctor.finds("unserved", "error", "format 9")


async def test_an_operation_that_moved_leaves_its_rows_behind(desk: Desk, doctor: Doctor, configuration: Path) -> None:
    await desk.pending("p")

    def move(text: str) -> str:
        line = next(line for line in text.splitlines() if line.startswith("accounts.keyed"))
        text = text.replace(line, line + "\n" + line.replace("accounts.keyed", "accounts.second"))
        return text.replace('account = "keyed"', 'account = "second"')

    edit(configuration, move)
    await doctor.finds("unserved", "error", "now uses another account than keyed/keyed")


async def test_calls_that_are_refused_for_our_configuration_are_an_error(desk: Desk, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("refused")] == ["ok"]
    await desk.after("k0", NotExecuted("config"))
    found = await doctor.finds("refused", "error", "1 queued call was refused")
    for number in range(1, 5):
        await desk.after(f"k{number}", NotExecuted("config"))
    (found,) = await doctor("refused")
    assert "5 queued calls were refused" in found["what"] and "workers stop calling" in found["what"]
    assert "keyed/keyed" in found["what"] and "restart the workers" in found["do"]


async def test_a_refusal_of_our_credentials_is_found_and_over_when_it_is_mended(desk: Desk, doctor: Doctor) -> None:
    accounts = desk.spine.catalogue.providers["keyed"].accounts
    good, bad = accounts["keyed"].credentials["authorization"], "Bearer wrong"
    await desk.pending("k")
    accounts["keyed"].credentials["authorization"] = bad  # type: ignore[index]
    await desk.spine.work()
    await doctor.finds("refused", "error", "status 401")
    accounts["keyed"].credentials["authorization"] = good  # type: ignore[index]
    await desk.spine.work(after=600)
    assert [each["level"] for each in await doctor("refused")] == ["ok"]


async def test_a_redriven_call_that_waits_for_its_old_credentials_is_a_warning(desk: Desk, doctor: Doctor) -> None:
    """Its dead letter is closed and its row is queued: nothing else says that no worker sends it."""
    accounts = desk.spine.catalogue.providers["keyed"].accounts
    intent = await desk.spine.sent("k", faults=["act_then_500"])
    await desk.spine.advance(400)
    letter = await desk.bury(intent, "reconcile_exhausted")
    accounts["keyed"].credentials["authorization"] = "Bearer another"  # type: ignore[index]
    await desk.cli("dlq", "redrive", letter, "--reason", "r", "--yes", code=0)
    await desk.spine.work()
    assert await desk.state(intent) == ("in_progress", "pending")
    found = await doctor.finds("refused", "warning", "1 queued call is not sent, because the credentials")
    assert "account_check" in found["do"]


async def test_a_provider_that_cannot_be_reached_is_a_warning(desk: Desk, doctor: Doctor) -> None:
    await desk.after("a", NotExecuted("transport"))
    await desk.after("b", NotExecuted("transport"))
    await doctor.finds("refused", "warning", "2 queued calls not sent at all")


async def test_a_breaker_that_is_open_is_a_warning_as_long_as_its_worker_lives(desk: Desk, doctor: Doctor) -> None:
    """The status sends a person here: rows that were given back say nothing of the calls that failed before."""
    says = 'UPDATE idem.daemons SET last_pass = \'{"breakers": ["keyed/keyed"]}\''
    await desk.spine.all(f"{says} WHERE kind = 'worker' RETURNING id")
    await doctor.finds("refused", "warning", "lane keyed/keyed: the breaker is open in 1 worker:")
    await desk.spine.all("UPDATE idem.daemons SET ended_at = now() WHERE kind = 'worker' RETURNING id")
    assert [each["level"] for each in await doctor("refused")] == ["ok"]


async def test_questions_that_nobody_answers_are_a_warning(desk: Desk, doctor: Doctor) -> None:
    """It says what the provider said: an outage, wrong credentials and another account are mended in other ways."""
    spine = desk.spine
    intent = await spine.sent("u", faults=["act_then_drop"])
    assert [each["level"] for each in await doctor("unasked")] == ["ok"]
    for asks in ({"method": "GET"}, None):
        spine.bank.script(asks, ["401"] * 20)
    await spine.reconcile(after=400, times=3)
    found = await doctor.finds("unasked", "warning", "look-ups of 1 row failed 3 times or more")
    assert "last: the question failed (HTTP 401)" in found["what"]
    assert f"idem intents show {intent}" in found["do"]


async def test_answers_that_are_not_believed_are_a_warning_too(desk: Desk, doctor: Doctor) -> None:
    """They use up the schedule (credentials that were changed, a 500 kept under the key), so no miss is counted."""
    intent = await desk.unknown("u")
    await desk.spine.all("UPDATE idem.outbox SET lookups = 3, absences = 1 RETURNING 1")
    assert [each["level"] for each in await doctor("unasked")] == ["ok"]
    await desk.spine.all("UPDATE idem.outbox SET lookups = 4 RETURNING 1")
    await doctor.finds("unasked", "warning", f"idem intents show {intent}")


async def test_a_stored_proof_that_nobody_applies_is_an_error(desk: Desk, doctor: Doctor) -> None:
    intent = await desk.unknown("u")
    await desk.store_proof(intent, Succeeded("pay_5"))
    assert [each["level"] for each in await doctor("proofs")] == ["ok"]
    await desk.spine.all("UPDATE idem.proofs SET stored_at = now() - interval '6 minutes' RETURNING 1")
    await doctor.finds("proofs", "error", "1 stored proof, the oldest of them not applied for 6m")


async def test_open_dead_letters_grow_from_a_warning_to_an_error(desk: Desk, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("dead_letters")] == ["ok"]
    intent = await desk.held("h")
    await doctor.finds("dead_letters", "warning", "1 open dead letter `rejected`")
    await desk.spine.all("UPDATE idem.dead_letters SET created_at = now() - interval '25 hours' RETURNING 1")
    assert [each["level"] for each in await doctor("dead_letters")] == ["error"]
    desk.environment["IDEM_DOCTOR_DEAD_LETTER"] = "3d"
    assert [each["level"] for each in await doctor("dead_letters")] == ["warning"]
    await desk.bury(intent, "possible_duplicate")
    urgent = [each for each in await doctor("dead_letters") if each["level"] == "error"]
    assert len(urgent) == 1 and "paid twice" in urgent[0]["what"]


async def test_hazard_67_a_key_without_its_row_is_found(desk: Desk, doctor: Doctor) -> None:
    await desk.completed("c")
    await desk.held("h")
    lost = await desk.pending("p")
    assert [each["level"] for each in await doctor("orphans")] == ["ok"]
    async with desk.spine.database.connection() as connection:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute("DELETE FROM idem.outbox WHERE intent_id = %s", (lost,))
        await connection.execute("RESET session_replication_role")
    found = await doctor.finds("orphans", "error", f"{lost} (in_progress)")
    assert found["what"].startswith("1 key ")

"""The server's side: durability, standbys, connections, clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import psycopg
import pytest
from doctor.conftest import Doctor
from fix_clock import with_clock
from fix_desk import Desk
from fix_steps import claim_one
from psycopg import sql

from idem.cli.doctor import clocks

pytestmark = pytest.mark.own_sessions


def alter(url: str, what: str) -> None:
    """ALTER DATABASE of this test's own database."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} " + what).format(name))  # type: ignore[arg-type]


async def test_synchronous_commit_off_for_the_database_is_a_warning(desk: Desk, doctor: Doctor) -> None:
    """What writes to idem commits durably all the same: tests/sessions/test_durable_commits.py."""
    assert not [each for each in await doctor("durability") if "synchronous_commit is" in each["what"]]
    alter(desk.spine.url, "SET synchronous_commit = off")
    (found,) = [each for each in await doctor("durability") if "synchronous_commit" in each["what"]]
    assert found["level"] == "warning"
    assert "RESET synchronous_commit" in found["do"]


async def test_what_the_server_itself_risks_is_said(desk: Desk, doctor: Doctor) -> None:
    fsync = (await desk.spine.one("SHOW fsync"))["fsync"]
    errors = [each for each in await doctor("durability") if each["what"].startswith("fsync is off")]
    assert len(errors) == (fsync == "off")


async def test_a_timeout_that_cuts_accepts_short_is_named(desk: Desk, doctor: Doctor) -> None:
    """An accept runs in the application's session; idem's own sessions ask for their timeouts themselves."""
    assert [each["level"] for each in await doctor("timeouts")] == ["ok"]
    with psycopg.connect(desk.spine.url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {} SET statement_timeout = '100ms'").format(
                sql.Identifier(connection.info.dbname)
            )
        )
    await doctor.finds("timeouts", "warning", "statement_timeout = 100ms")


async def test_a_database_that_is_read_only_is_an_error(desk: Desk, doctor: Doctor) -> None:
    alter(desk.spine.url, "SET default_transaction_read_only = on")
    await doctor.finds("server", "error", "default_transaction_read_only")


async def test_ib_071_the_sum_of_all_pools_is_compared_with_the_server(desk: Desk, doctor: Doctor) -> None:
    alter(desk.spine.url, "CONNECTION LIMIT 100")
    desk.environment["IDEM_API_POOL"] = "40"
    # Whoever may pass the database's limit is not bound by it; the sum is compared all the same.
    found = await doctor.finds("connections", "warning", options=("--replicas", 4))
    assert "216 connections" in found["what"] and "100" in found["what"]
    desk.environment["IDEM_API_POOL"] = "10"
    rolling = await doctor.finds("connections", "warning", options=("--replicas", 4))
    assert "96 connections" in rolling["what"] and "rolling deploy" in rolling["what"] and "192" in rolling["what"]
    (enough,) = await doctor("connections", options=("--replicas", 1))
    assert enough["level"] == "ok", enough


async def test_hazard_60_durability_that_is_promised_must_be_there(desk: Desk, doctor: Doctor) -> None:
    (found,) = await doctor("standby")
    assert found["level"] == "ok", found
    desk.environment["IDEM_DATABASE_DURABILITY"] = "synchronous"
    found = await doctor.finds("standby", "error", "synchronous_standby_names is empty")
    desk.environment["IDEM_DATABASE_DURABILITY"] = "single"
    try:
        follower = psycopg.connect(desk.spine.url, replication="true", application_name="follower", autocommit=True)
    except psycopg.OperationalError as refused:
        pytest.skip(f"this server lets nobody replicate: {refused}")
    with follower:
        identified = follower.pgconn.exec_(b"IDENTIFY_SYSTEM")
        follower.pgconn.send_query(b"START_REPLICATION PHYSICAL " + (identified.get_value(0, 2) or b"0/0"))
        while follower.pgconn.is_busy():
            follower.pgconn.consume_input()
        assert follower.pgconn.get_result() is not None
        found = await doctor.finds("standby", "error")
        assert "asynchronous standby follows (follower)" in found["what"]
        desk.environment["IDEM_DATABASE_DURABILITY"] = "asynchronous"
        await doctor.finds("standby", "warning", "follower")
        follower.pgconn.finish()


class Ahead(datetime):
    """A clock of this machine that is wrong."""

    by = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Ahead:
        return super().now(tz) + cls.by


@pytest.mark.parametrize(("seconds", "level"), [(2, "ok"), (8, "warning"), (60, "error"), (-60, "error")])
async def test_a_wrong_clock_is_said(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, seconds: int, level: str) -> None:
    """A tenth of the shortest pause_allowance (2 min in this configuration) is an error."""
    monkeypatch.setattr(Ahead, "by", timedelta(seconds=seconds))
    monkeypatch.setattr(clocks, "datetime", Ahead)
    await doctor.finds("clock", level)
    assert abs(Ahead.now(UTC) - datetime.now(UTC)) > timedelta(seconds=1)


async def test_a_jump_of_the_database_clock_is_shown(desk: Desk, doctor: Doctor) -> None:
    run = 'UPDATE idem.daemons SET last_pass = \'{"clock": {"jumped": -40.5, "at": "2030-01-01T00:00:00+00:00"}}\''
    await desk.spine.all(f"{run} WHERE kind = 'worker' RETURNING id")
    (found,) = [each for each in await doctor("clock") if each["level"] == "warning"]
    assert "back by 40 s" in found["what"] and "worker-1" in found["what"] and "--lost" in found["do"]


async def test_rows_written_by_a_clock_that_was_ahead_are_shown(desk: Desk, doctor: Doctor) -> None:
    """A claim and a row that is asked about; then what has no known first send, when the waits are over."""
    spine = desk.spine
    await spine.sent("asked", faults=["act_then_drop"])
    assert [each["level"] for each in await doctor("clock")] == ["ok"]
    async with with_clock(spine, 86400):
        spine.accepted("claimed")
        await claim_one(spine)
    # As a look by that clock would have left it.
    await spine.all("UPDATE idem.outbox SET available_at = available_at + interval '90 d'"
                    " WHERE status = 'unknown' RETURNING id")  # fmt: skip
    (waits, unknown) = [each for each in await doctor("clock") if each["level"] != "ok"]
    assert waits["level"] == "error" and waits["what"].startswith("2 open rows") and "1 of them is" in waits["what"]
    assert unknown["level"] == "warning" and "does not know when 1 open row was first sent" in unknown["what"]
    await spine.sweep()
    await spine.advance(100 * 86400)
    (unknown,) = [each for each in await doctor("clock") if each["level"] != "ok"]
    assert "does not know when 1 open row was first sent" in unknown["what"]


async def test_a_database_clock_that_went_back_is_found(desk: Desk, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("clock")] == ["ok"]
    await desk.spine.all("UPDATE idem.daemons SET seen_at = now() + interval '1 hour' RETURNING 1")
    found = [each for each in await doctor("clock") if each["level"] == "error"]
    assert len(found) == 1 and "went back" in found[0]["what"]

"""Schema, environment, identity, rights, and what keeps the hot tables clean."""

import asyncio

import psycopg
import pytest
from doctor.conftest import Doctor, run
from fix_desk import Desk

from idem.outbox.config.doctor_settings import DoctorSettings

PAST_TRIGGERS = "SET session_replication_role = replica"


async def test_rights_that_are_missing_are_named_one_by_one(as_daemon: Desk, role: str, doctor: Doctor) -> None:
    (found,) = await doctor("rights")
    assert (found["level"], role in found["what"]) == ("ok", True), found
    run(
        as_daemon.spine.url,
        f"REVOKE DELETE ON idem.outbox FROM {role}",
        f"REVOKE UPDATE (intent_id) ON idem.evidence FROM {role}",
        f"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA idem FROM {role}",
    )
    found = await doctor.finds("rights", "error")
    assert "DELETE on outbox, " in found["what"] and "UPDATE on evidence" in found["what"]
    assert "EXECUTE on" in found["what"]
    assert "SELECT" not in found["what"]


async def test_a_role_that_may_not_look_hears_that_it_may_not(as_daemon: Desk, role: str, doctor: Doctor) -> None:
    run(as_daemon.spine.url, f"REVOKE SELECT ON idem.outbox FROM {role}")
    found = await doctor("queue")
    assert found[0]["level"] == "error" and "permission denied" in found[0]["what"]
    # The others are made all the same.
    assert [each["level"] for each in await doctor("dead_letters")] == ["ok"]
    run(as_daemon.spine.url, f"REVOKE USAGE ON SCHEMA idem FROM {role}")
    result = await as_daemon.cli("doctor")
    assert result.code == 1 and "idem db grant" in result.out


async def test_a_role_without_the_schema_is_told_the_command(as_daemon: Desk, role: str, doctor: Doctor) -> None:
    run(as_daemon.spine.url, f"REVOKE USAGE ON SCHEMA idem FROM {role}")
    found = await doctor.finds("schema", "error", "permission denied for schema idem")
    assert "idem db grant" in found["do"] and "--as daemon" in found["do"] and "pg_monitor" not in found["do"]
    refused = await as_daemon.cli("status")
    assert refused.code == 1 and "idem db grant ROLE --as daemon" in refused.err


async def test_rights_of_everybody_are_an_error(as_daemon: Desk, doctor: Doctor) -> None:
    url = as_daemon.spine.url
    run(url, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idem TO PUBLIC", "GRANT SELECT ON idem.requests TO PUBLIC")
    found = await doctor.finds("rights", "error", "SELECT on requests", "EXECUTE on")
    run(url, *(statement for statement in found["do"].partition(": ")[2].split("; ")))
    (found,) = await doctor("rights")
    assert found["level"] == "ok", found


async def test_a_tenants_role_that_is_gone_or_another_is_named(as_daemon: Desk, role: str, doctor: Doctor) -> None:
    run(
        as_daemon.spine.url,
        "INSERT INTO idem.producers (role, role_oid, tenant) VALUES ('gone', 1, 'acme'), ('gone', 1, 'globex')",
        f"INSERT INTO idem.producers (role, role_oid, tenant) VALUES ('{role}', 1, 'other')",
        f"INSERT INTO idem.producers (role, role_oid, tenant) SELECT '{role}', '{role}'::regrole, 'mine'",
    )
    well, found = await doctor("rights")
    assert (well["level"], found["level"]) == ("ok", "warning")
    assert "gone (tenants acme, globex)" in found["what"] and f"{role} (tenants other)" in found["what"], found


async def test_a_superuser_is_a_warning(doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("rights")] == ["warning"]


async def test_transactions_of_others_are_hidden_without_pg_monitor(as_daemon: Desk, role: str, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("snapshot")] == ["ok"]
    run(as_daemon.spine.url, f"REVOKE pg_monitor FROM {role}")
    found = await doctor.finds("snapshot", "warning", role)
    run(as_daemon.spine.url, found["do"].partition(": ")[2].partition(";")[0])
    assert [each["level"] for each in await doctor("snapshot")] == ["ok"]


@pytest.mark.parametrize(
    ("statements", "what", "do"),
    [
        (["UPDATE idem.alembic_version SET version_num = '0000'"], "is at 0000", "idem db upgrade"),
        (["UPDATE idem.alembic_version SET version_num = '9999'"], "does not know", "newer"),
        (["DROP SCHEMA idem CASCADE"], "has no idem schema", "do not upgrade it"),
    ],
)
async def test_a_bad_schema_is_one_error(desk: Desk, doctor: Doctor, statements: list[str], what: str, do: str) -> None:
    await desk.spine.database.close()
    run(desk.spine.url, *statements)
    found = await doctor()
    (schema,) = [each for each in found if each["check"] == "schema"]
    assert schema["level"] == "error" and what in schema["what"] and do in schema["do"]
    assert not [each for each in found if "could not be checked" in each["what"]]
    assert not [each for each in found if each["check"] == "queue"]
    assert [each for each in found if each["check"] == "pooler"]


async def test_the_wrong_environment_is_an_error(desk: Desk, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("environment")] == ["ok"]
    desk.environment["IDEM_ENVIRONMENT"] = "production"
    await doctor.finds("environment", "error", "this database is test", "production")


@pytest.mark.parametrize(
    ("change", "durability", "level"),
    [
        ("database_name = 'elsewhere'", "single", "error"),
        ("system_identifier = 1", "synchronous", "error"),
        ("timeline = timeline - 1", "single", "error"),
        ("timeline = timeline - 1", "synchronous", "warning"),
    ],
)
async def test_hazard_5_another_database(desk: Desk, doctor: Doctor, change: str, durability: str, level: str) -> None:
    assert [each["level"] for each in await doctor("identity")] == ["ok"]
    desk.environment["IDEM_DATABASE_DURABILITY"] = durability
    run(desk.spine.url, f"UPDATE idem.installation SET {change}")
    await doctor.finds("identity", level, "idem recover")
    # He only looks.
    assert (await desk.spine.one("SELECT changed_at FROM idem.installation"))["changed_at"] is None


async def test_rows_that_wait_for_a_word_after_a_change_are_counted(desk: Desk, doctor: Doctor) -> None:
    await desk.unknown("u", quiet=False)
    assert await doctor("recovery") == []
    run(desk.spine.url, "UPDATE idem.installation SET changed_at = now()")
    await doctor.finds("recovery", "warning", "1 row", "--lossless")


async def test_ib_048_vacuum_of_the_hot_tables_is_looked_at(desk: Desk, doctor: Doctor) -> None:
    found = await doctor.finds("vacuum", "ok")
    for table in ("outbox", "idempotency_keys", "proofs"):
        assert f"{table} 0 dead of 0, last vacuum never" in found["what"]
    run(
        desk.spine.url,
        "ALTER TABLE idem.outbox SET (autovacuum_enabled = off)",
        "ALTER TABLE idem.idempotency_keys RESET (autovacuum_vacuum_scale_factor)",
    )
    levels = {each["level"]: each["what"] for each in await doctor("vacuum")}
    assert "switched off for idem.outbox" in levels["error"]
    assert "idempotency_keys has lost its own autovacuum_vacuum_scale_factor" in levels["warning"]


FILL = """
INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome)
SELECT gen_random_uuid(), gen_random_uuid(), 'webhook', 'pending' FROM generate_series(1, 60000)
"""


async def test_ib_048_dead_rows_are_counted(desk: Desk, doctor: Doctor) -> None:
    run(desk.spine.url, "ALTER TABLE idem.proofs SET (autovacuum_enabled = off)")
    run(desk.spine.url, PAST_TRIGGERS, FILL, "DELETE FROM idem.proofs")
    for _ in range(40):
        dead = [each for each in await doctor("vacuum") if "far more dead rows" in each["what"]]
        if dead:
            break
        await asyncio.sleep(0.25)
    assert dead and "proofs 60000 dead of 60000" in dead[0]["what"]
    run(desk.spine.url, "VACUUM idem.proofs")


async def test_an_open_transaction_is_named(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DoctorSettings, "snapshot", 0.2)
    with psycopg.connect(desk.spine.url, application_name="report") as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM idem.outbox")
        await asyncio.sleep(0.3)
        found = await doctor.finds("snapshot", "error")
        assert f"process {other.info.backend_pid} (report" in found["what"]
        assert "idle in transaction" in found["what"] and "pg_terminate_backend" in found["do"]
    monkeypatch.undo()
    assert [each["level"] for each in await doctor("snapshot")] == ["ok"]


async def test_rows_that_are_still_to_be_doubted_are_an_error(desk: Desk, doctor: Doctor) -> None:
    """Another session holds them, or no sweeper runs: nobody sends or settles them meanwhile (P5)."""
    await desk.pending("u")
    run(desk.spine.url, "INSERT INTO idem.doubts (outbox_id, details) SELECT id, '{}' FROM idem.outbox")
    await doctor.finds("recovery", "warning", "1 row ", "pg_stat_activity")
    run(desk.spine.url, "UPDATE idem.doubts SET listed_at = now() - interval '5 min'")
    await doctor.finds("recovery", "error")

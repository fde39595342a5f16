"""The examination as a whole: a healthy installation, its form, and what stands in its way."""

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from doctor.conftest import DAEMONS, Doctor, edit
from fix_desk import Desk
from fix_line import target

from idem.cli.doctor import contracts, examination, replication, server, unsettled
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.config.loading import load
from idem.outbox.database.address import Address
from idem.outbox.domain.contract import LOCAL
from idem.outbox.providers.local import LocalProvider
from idem.testing.proxy import Proxy

OF_THE_SERVER = {"durability", "standby", "connections"}
"""What depends on the server that the tests run on, and on what else runs there."""


@pytest.fixture
async def healthy(as_daemon: Desk, configuration: Path) -> Desk:
    today = datetime.now(UTC).date().isoformat()
    edit(configuration, lambda text: text.replace("[providers.keyed]\n", f'[providers.keyed]\nverified = "{today}"\n'))
    await as_daemon.spine.all(DAEMONS)
    return as_daemon


async def test_a_healthy_installation_that_works_has_nothing_but_ok(healthy: Desk) -> None:
    await healthy.completed("c")
    await healthy.unknown("u")
    await healthy.pending("p")
    result = await healthy.cli("doctor", "--json")
    data = result.data
    assert set(data) == {"ok", "errors", "warnings", "first", "findings"}
    here = [each for each in data["findings"] if each["check"] not in OF_THE_SERVER]
    assert [each for each in here if each["level"] != "ok"] == []
    assert {each["check"] for each in data["findings"]} >= OF_THE_SERVER | {
        "configuration", "server", "schema", "timeouts", "pooler", "clock", "contracts", "environment", "identity",
        "rights", "vacuum", "snapshot", "locks", "daemons", "queue", "order", "replay_window", "paused", "unserved",
        "refused", "unasked", "proofs", "dead_letters", "orphans",
    }  # fmt: skip
    assert data["ok"] is (data["errors"] == 0)
    assert result.code == (0 if data["ok"] else 1)


async def test_exit_codes(healthy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 without errors, 3 for warnings with --strict, 1 for errors."""
    # The server of the tests risks something for speed, and other tests may have a standby there at this moment.
    monkeypatch.setattr(server, "SERVER", server.SERVER.replace("current_setting('fsync') AS", "'on' AS"))
    monkeypatch.setattr(replication, "STANDBYS", replication.STANDBYS + " LIMIT 0")
    assert (await healthy.cli("doctor", "--strict")).code == 0
    await healthy.bury(None, "unmatched_webhook", "w1")
    assert (await healthy.cli("doctor")).code == 0
    assert (await healthy.cli("doctor", "--strict")).code == 3
    await healthy.bury(None, "conflict", "w2")
    assert (await healthy.cli("doctor")).code == 1


async def test_the_text_says_what_to_do_about_everything(desk: Desk, doctor: Doctor) -> None:
    await desk.held("h")
    findings = await doctor()
    out = (await desk.cli("doctor")).out
    for each in findings:
        if each["level"] != "ok":
            assert f"{each['level']:7}  {each['check']}: " in out
            assert "         → " in out
    assert out.count("→") >= sum(each["level"] != "ok" for each in findings)
    last = out.rstrip().splitlines()[-1]
    wrong = [each for each in findings if each["level"] != "ok"]
    urgent = next((each for each in wrong if each["level"] == "error"), wrong[0])
    assert all(each["check"] in last for each in wrong)
    assert f"{sum(each['level'] == 'ok' for each in findings)} in order." in last
    assert last.endswith(f"First, {urgent['check']}: {urgent['do']}")
    assert (await desk.cli("doctor", "--json")).data["first"] == {"check": urgent["check"], "do": urgent["do"]}


async def test_without_a_finding_the_last_line_only_counts(healthy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SERVER", server.SERVER.replace("current_setting('fsync') AS", "'on' AS"))
    monkeypatch.setattr(replication, "STANDBYS", replication.STANDBYS + " LIMIT 0")
    last = (await healthy.cli("doctor")).out.rstrip().splitlines()[-1]
    assert last.startswith("0 errors, 0 warnings, ") and last.endswith(" in order")


async def test_a_local_operation_has_no_contract_to_warn_about(configuration: Path) -> None:
    """An application's configuration names the provider of its local operations."""
    found = replace(load(configuration, accepting=True), providers={LOCAL: LocalProvider()})
    examined = examination.Examination(Address("postgresql://localhost/x"), configuration=found)
    assert [each.level async for each in contracts.contracts(examined)] == ["ok"]


async def test_no_check_can_write(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsettled, "LETTERS", "DELETE FROM idem.daemons RETURNING id")
    await doctor.finds("dead_letters", "error", "read-only transaction")
    assert len(await desk.spine.all("SELECT id FROM idem.daemons")) == 3


async def test_a_fault_of_one_check_hides_no_other(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "STATEMENT_TIMEOUT", 1)
    monkeypatch.setattr(unsettled, "LETTERS", "SELECT 1 AS nothing")
    monkeypatch.setattr(unsettled, "PROOFS", "SELECT pg_sleep(60)")
    await doctor.finds("dead_letters", "error", "a bug in idem: KeyError")
    await doctor.finds("proofs", "error", "within 1 s")
    assert [each["level"] for each in await doctor("orphans")] == ["ok"]
    result = await desk.cli("doctor")
    assert result.code == 1 and "Traceback" not in result.out + result.err


async def test_a_locked_table_delays_briefly(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a change of the schema that waits behind a dump (IB-157)."""
    monkeypatch.setattr(examination, "LOCK_TIMEOUT", 1)
    with psycopg.connect(desk.spine.url) as other:
        other.execute("LOCK TABLE idem.outbox IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(90):
            found = await doctor()
        other.rollback()
    locked = {each["check"] for each in found if "another session has locked" in each["what"]}
    assert "queue" in locked
    assert [each["level"] for each in found if each["check"] == "dead_letters"] == ["ok"]
    assert [each["level"] for each in found if each["check"] == "pooler"] == ["ok"]


async def test_a_database_that_is_away_is_an_error_and_the_rest_is_checked(desk: Desk) -> None:
    async with Proxy(target(desk.spine.url), lambda *_: "swallow") as silent:
        for url in (
            f"postgresql://u@127.0.0.1:{silent.port}/x",
            "postgresql://u@127.0.0.1:9/x",
            f"{desk.spine.url}&port=1",
        ):
            desk.environment["IDEM_DATABASE_URL"] = url
            result = await desk.cli("doctor", "--json")
            findings = {each["check"]: each for each in result.data["findings"]}
            assert result.code == 1 and result.err == ""
            assert findings["database"]["level"] == "error" and "IDEM_DATABASE_URL" in findings["database"]["do"]
            assert (findings["configuration"]["level"], findings["contracts"]["level"]) == ("ok", "warning")
            assert set(findings) == {"database", "configuration", "contracts"}


@pytest.mark.parametrize("url", ["", "mysql://x/y", "postgresql://u:p@h:port/x"])
async def test_a_url_that_is_none_is_an_error(desk: Desk, url: str) -> None:
    desk.environment["IDEM_DATABASE_URL"] = url
    result = await desk.cli("doctor", "--json", code=1)
    assert [each["level"] for each in result.data["findings"] if each["check"] == "database"] == ["error"]
    assert "u:p" not in result.out


async def test_a_broken_configuration_is_named_beside_the_rest(desk: Desk, doctor: Doctor, configuration: Path) -> None:
    await desk.held("h")
    edit(configuration, lambda text: text.replace('deadline = "2s"', 'deadline = "90s"'))
    del desk.environment["BANK_TOKEN"]
    found = await doctor()
    wrong = [each["what"] for each in found if (each["check"], each["level"]) == ("configuration", "error")]
    assert any("BANK_TOKEN is not set" in what for what in wrong)
    assert any("providers.keyed.deadline" in what and "lease" in what for what in wrong)
    assert [each["level"] for each in found if each["check"] == "dead_letters"] == ["warning"]
    assert not [each for each in found if each["check"] in ("unserved", "contracts")]


async def test_without_a_configuration_it_goes_on(
    desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del desk.environment["IDEM_CONFIG"]
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    found = await doctor()
    assert [each["level"] for each in found if each["check"] == "configuration"] == ["warning"]
    assert [each["level"] for each in found if each["check"] == "queue"] == ["ok"]


async def test_contracts_that_cannot_settle_or_are_unchecked(desk: Desk, doctor: Doctor, configuration: Path) -> None:
    await doctor.finds("contracts", "warning", "last verified")
    old = date.today() - timedelta(days=DoctorSettings().verified // 86400 + 2)
    edit(configuration, lambda text: text.replace("[providers.keyed]\n", f'[providers.keyed]\nverified = "{old}"\n'))
    await doctor.finds("contracts", "warning", "last verified 367 days ago")

    def without_proof(text: str) -> str:
        lines = [line for line in text.splitlines() if not line.startswith(("key = ", "lookup = ", "verified = "))]
        at = lines.index("[providers.keyed]") + 1
        lines[at:at] = ['on_unsettleable = "operator"', f'verified = "{date.today()}"']
        return "\n".join(lines)

    edit(configuration, without_proof)
    await doctor.finds("contracts", "warning", "idem cannot find out what happened")


async def test_daemons_that_do_not_run_are_an_error_where_rows_are_open(desk: Desk, doctor: Doctor) -> None:
    assert [each["level"] for each in await doctor("daemons")] == ["ok"]
    await desk.spine.all("DELETE FROM idem.daemons WHERE kind = 'sweeper' RETURNING 1")
    await doctor.finds("daemons", "warning", "no sweeper is running and none ever ran")
    await desk.pending("p")
    await doctor.finds("daemons", "error", "idem sweeper run")


async def test_a_daemon_that_lives_and_does_nothing_is_an_error(desk: Desk, doctor: Doctor) -> None:
    await desk.spine.all(
        "UPDATE idem.daemons SET last_pass_at = now() - interval '2 minutes' WHERE kind = 'reconciler' RETURNING 1"
    )
    await desk.spine.all(
        "UPDATE idem.daemons SET last_pass_at = NULL, started_at = now() - interval '3 minutes' WHERE kind = 'worker'"
        " RETURNING 1"
    )
    found = {each["what"].split()[1]: each for each in await doctor("daemons")}
    assert set(found) == {"reconciler", "worker"}
    assert all(each["level"] == "error" for each in found.values())
    assert "last pass was 2m" in found["reconciler"]["what"] and "last pass was 3m" in found["worker"]["what"]


async def test_a_daemon_that_fell_silent_is_a_warning_beside_one_that_runs(desk: Desk, doctor: Doctor) -> None:
    await desk.spine.all(
        "INSERT INTO idem.daemons (id, kind, host, pid, seen_at, last_pass_at)"
        " VALUES ('worker-2', 'worker', 'there', 7, now() - interval '5 minutes', now()) RETURNING 1"
    )
    found = await doctor.finds("daemons", "warning", "a worker on there (process 7) stopped reporting 5m")
    assert "kill -KILL 7" in found["do"] and "on there" in found["do"]


async def test_the_last_one_that_fell_silent_is_named_once(desk: Desk, doctor: Doctor) -> None:
    await desk.spine.all(
        "UPDATE idem.daemons SET seen_at = now() - interval '5 minutes', last_pass_at = now() - interval '5 minutes'"
        " WHERE kind = 'worker' RETURNING 1"
    )
    (found,) = await doctor("daemons")
    assert "no worker is running (last seen 5m" in found["what"] and "No row is open yet" in found["what"]
    assert "kill -KILL" in found["do"] and "idem worker run" in found["do"]


WEBHOOK = """
INSERT INTO idem.webhook_events (provider, account, event_id, fate, retry_at, received_at)
VALUES ('keyed', 'keyed', %(id)s, %(fate)s, %(retry)s, now() - interval '1 hour') RETURNING 1
"""


async def test_webhooks_that_never_came_and_webhooks_that_wait(desk: Desk, doctor: Doctor, configuration: Path) -> None:
    assert await doctor("webhooks") == []

    def with_webhook(text: str) -> str:
        text = text.replace('"Bearer " } }', '"Bearer " }, webhook = { secrets = [{ env = "HOOK" }] } }')
        return text.replace("[providers.keyed]\n", '[providers.keyed]\nwebhook = { scheme = "standard" }\n')

    edit(configuration, with_webhook)
    desk.environment["HOOK"] = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoxMjM0NTY="
    found = await doctor("configuration", "webhooks")
    assert [each for each in found if each["level"] == "error"] == []
    assert [
        "keyed/keyed has a webhook configured" in each["what"] for each in found if each["check"] == "webhooks"
    ] == [True]
    await desk.spine.all(WEBHOOK, id="e1", fate="applied", retry=None)
    await doctor.finds("webhooks", "ok", "keyed/keyed 1h")
    await desk.spine.all(WEBHOOK, id="e2", fate="deferred", retry=datetime.now(UTC) - timedelta(minutes=20))
    late = [each for each in await doctor("webhooks") if each["level"] == "error"]
    assert len(late) == 1 and late[0]["what"].startswith("1 webhook to apply, the oldest due for 20m")

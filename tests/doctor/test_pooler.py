"""What stands between idem and its database (IB-059)."""

import asyncio

import pytest
from doctor.conftest import Doctor
from doctor.pooled import through
from doctor.transaction_pooler import TransactionPooler
from fix_desk import Desk
from fix_line import target
from psycopg.conninfo import conninfo_to_dict

from idem.cli.doctor import examination
from idem.testing.proxy import Proxy


async def test_a_direct_connection_hears_its_notification(doctor: Doctor) -> None:
    (found,) = await doctor("pooler", "notify")
    assert (found["level"], found["what"]) == ("ok", "connected directly; a notification arrived")


@pytest.mark.parametrize("size", [1, 4])
async def test_ib_059_a_pooler_in_transaction_mode_is_named(desk: Desk, doctor: Doctor, size: int) -> None:
    if conninfo_to_dict(desk.spine.url).get("password"):
        pytest.skip("the pooler of this test can log in only where the server trusts it")
    async with TransactionPooler(target(desk.spine.url), size) as pooler:
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, pooler.port)
        findings = {each["check"]: each for each in await doctor()}
    assert findings["pooler"]["level"] == "error"
    assert "pool_mode = session" in findings["pooler"]["do"]
    if size > 1:
        assert findings["notify"]["level"] == "warning"
        assert "worker.poll" in findings["notify"]["what"]
    # Its own settings are those of each transaction, so everything else is found as without a pooler.
    assert [each for each in findings.values() if "could not be checked" in each["what"]] == []
    assert findings["queue"]["level"] == "ok"


async def test_a_line_that_keeps_sessions_is_in_order(desk: Desk, doctor: Doctor) -> None:
    async with Proxy(target(desk.spine.url)) as proxy:
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, proxy.port)
        assert [each["level"] for each in await doctor("pooler", "notify")] == ["ok"]


async def test_a_line_that_goes_dead_is_a_finding(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the server has answered a while, nothing comes back any more; the line stays open."""
    monkeypatch.setattr(examination, "CHECK_TIMEOUT", 3.0)
    monkeypatch.setattr(examination, "CONNECT_TIMEOUT", 1)
    passed = 0

    def freeze(_connection: int, direction: str, data: bytes) -> str:
        nonlocal passed
        passed += len(data) if direction == "to_client" else 0
        return "pass" if passed < 6000 else "swallow"

    async with Proxy(target(desk.spine.url), freeze) as proxy:  # type: ignore[arg-type]
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, proxy.port)
        async with asyncio.timeout(90):
            found = await doctor()
    assert any("could not be checked" in each["what"] for each in found if each["level"] == "error")
    assert [each["level"] for each in found if each["check"] == "database"] == ["error"]

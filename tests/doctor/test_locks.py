"""A session that holds rows of idem is named, so that a person can end it."""

import psycopg
import pytest
from doctor.conftest import Doctor
from fix_desk import Desk

from idem.cli.doctor import locks


async def test_a_session_that_holds_rows_is_named(desk: Desk, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    await desk.pending("k")
    assert [each["level"] for each in await doctor("locks")] == ["ok"]
    with psycopg.connect(desk.spine.url, application_name="a person") as other:
        other.execute("SELECT id FROM idem.outbox")
        assert [each["level"] for each in await doctor("locks")] == ["ok"], "who only reads holds nothing"
        other.execute("SELECT id FROM idem.outbox FOR UPDATE")
        found = await doctor.finds("locks", "warning", "outbox", "a person")
        assert f"process {other.info.backend_pid} " in found["what"]
        end = found["do"].partition("; ")[2].partition(" ends")[0]
        await desk.spine.all(end)
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")
    assert [each["level"] for each in await doctor("locks")] == ["ok"]

"""What is frozen for a call stays its request: no role makes another one, and the next one is made in order."""

from typing import Any

import psycopg
import pytest
from schema import shapes
from schema.databases import Installed
from schema.shapes import NOW, ROW, SOON, row_columns

from idem.outbox.settle import key_rotation

Connection = psycopg.Connection[Any]
OPEN = ["unfrozen", "waiting", "pending", "claimed", "unknown", "awaiting", "held"]
TERMS = {
    "tenant_id": "other", "operation": "other", "inline": True, "marks_start": True, "replay_window": 2147483647,
    "format_version": 2, "imported_as": None, "imported_sent_at": None,
}  # fmt: skip
OTHER = {"method": "POST", "path": "/", "headers": "{}", "body": b'{"amount": 99999}'}


@pytest.fixture
def daemon(pristine: Installed) -> str:
    return f"SET LOCAL ROLE {pristine.daemon}"


def plant(connection: Connection, **row: Any) -> None:
    state = "failed_retryable" if row["status"] == "held" else "in_progress"
    shapes.plant(connection, "intents", "outbox", "requests", intents={"state": state},
                 outbox={"tenant_id": "t", "imported_as": "key", "imported_sent_at": NOW} | row)  # fmt: skip


def next_key(connection: Connection, generation: int = 2) -> dict[str, Any]:
    return {"id": ROW, "generation": generation, "key": shapes.derived(connection, "t", "pay", "k", generation)}


@pytest.mark.parametrize("status", OPEN)
def test_no_other_request_is_frozen_for_a_call_under_way(rolled_back: Connection, daemon: str, status: str) -> None:
    """Accepted 700, paid 99999: also where it would be under the derived key."""
    plant(rolled_back, **row_columns(status))
    given = {**next_key(rolled_back), **OTHER}
    rolled_back.execute(daemon)
    with (
        pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT of requests"),
        rolled_back.transaction(),
    ):
        shapes.insert(rolled_back, "requests", generation=2, provider_key=given["key"], body=OTHER["body"])
    with (
        pytest.raises(psycopg.errors.CheckViolation, match="refuses this UPDATE of outbox row"),
        rolled_back.transaction(),
    ):
        shapes.update(rolled_back, "outbox", generation=2, provider_key=given["key"])
    with pytest.raises(psycopg.errors.UniqueViolation if status in ("unfrozen", "pending") else
                       psycopg.errors.CheckViolation):  # fmt: skip
        shapes.insert(rolled_back, "requests", body=OTHER["body"])


def test_a_role_that_was_granted_everything_freezes_no_other_request(
    rolled_back: Connection, pristine: Installed, daemon: str
) -> None:
    """The right to put a trigger on the table is among them, and is not the owner's."""
    plant(rolled_back, **row_columns("claimed"))
    rolled_back.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA idem TO {pristine.daemon}")
    rolled_back.execute(daemon)
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT of requests"):
        shapes.insert(rolled_back, "requests", generation=2, body=OTHER["body"])


def test_the_next_generation_is_made_in_order(rolled_back: Connection, daemon: str) -> None:
    plant(rolled_back, **row_columns("unfrozen"), key_burned=True, quiet_after=NOW)
    given = {**next_key(rolled_back), **OTHER}
    wrong = (
        {"generation": 2, "provider_key": shapes.INTENT},
        {"generation": 3, "provider_key": next_key(rolled_back, 3)["key"]},
        {"generation": 2, "provider_key": given["key"], "status": "pending", "key_burned": False},
    )
    rolled_back.execute(daemon)
    for changes in wrong:
        with (
            pytest.raises(psycopg.errors.CheckViolation, match="provider key of generation"),
            rolled_back.transaction(),
        ):
            shapes.update(rolled_back, "outbox", **changes)
    assert rolled_back.execute(key_rotation.REKEY, given).fetchone() == (ROW,)
    assert shapes.update(rolled_back, "outbox", status="pending") == 1
    shapes.insert(rolled_back, "requests", generation=2, provider_key=given["key"])


def test_the_next_generation_waits_for_the_quiet_time(rolled_back: Connection, daemon: str) -> None:
    plant(rolled_back, **row_columns("unfrozen"), key_burned=True, quiet_after=SOON)
    key = next_key(rolled_back)["key"]
    rolled_back.execute(daemon)
    with pytest.raises(psycopg.errors.CheckViolation, match="provider key of generation"):
        shapes.update(rolled_back, "outbox", generation=2, provider_key=key)


@pytest.mark.parametrize("column", ["intent_id", "step", "provider", "account", "provider_key"])
def test_a_request_is_of_its_row(rolled_back: Connection, daemon: str, column: str) -> None:
    shapes.plant(rolled_back, "intents", "outbox")
    rolled_back.execute(daemon)
    other = {"intent_id": ROW, "step": 2, "provider": "other", "account": "other", "provider_key": shapes.INTENT}
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT"), rolled_back.transaction():
        shapes.insert(rolled_back, "requests", **{column: other[column]})
    shapes.insert(rolled_back, "requests")


@pytest.mark.parametrize("status", ["pending", "unknown", "held"])
@pytest.mark.parametrize("column", TERMS)
def test_a_row_keeps_its_terms(rolled_back: Connection, daemon: str, status: str, column: str) -> None:
    plant(rolled_back, **row_columns(status))
    rolled_back.execute(daemon)
    with pytest.raises(psycopg.errors.CheckViolation):
        shapes.update(rolled_back, "outbox", **{column: TERMS[column]})

"""Every pair of states, tried against the database: exactly the listed ones go through, whoever writes (hazard 61)."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from itertools import permutations
from typing import Any

import psycopg
import pytest
from schema import shapes

from idem.outbox.domain.states import (
    BLOCKS_RETRY,
    KEY_TRANSITIONS,
    OUTBOX_TRANSITIONS,
    QUEUED,
    KeyState,
    OutboxStatus,
    Reason,
    pairs,
)

Connection = psycopg.Connection[Any]
WHO = pytest.mark.parametrize("who", ["owner", "daemon"])


def refused(
    connection: Connection, role: str, prepare: Callable[[], None], act: Callable[[], Any]
) -> psycopg.Error | None:
    """What the database says to `act` by `role` after `prepare` by a superuser; nothing of it stays."""
    connection.execute("SAVEPOINT attempt")
    try:
        prepare()
        connection.execute(f"SET LOCAL ROLE {role}")
        act()
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except psycopg.Error as error:
        return error
    finally:
        connection.execute("ROLLBACK TO SAVEPOINT attempt")
    return None


@pytest.fixture
def role(pristine: Any, who: str) -> str:
    return str(getattr(pristine, who))


def listed(transitions: Any, who: str) -> set[tuple[str | None, str | None]]:
    """A daemon begins nothing, and approves nothing: functions of the owner do."""
    return {
        (source, target)
        for source, target in pairs(transitions)
        if who == "owner" or not (source is None or (source == "approval" and target in QUEUED))
    }


def approvals(source: OutboxStatus, target: OutboxStatus) -> tuple[dict[str, Any], dict[str, Any]]:
    """The approval of a row before and after a change of its status, as the CHECKs and the change want it."""
    if source is OutboxStatus.APPROVAL:
        return {"approval": "wanted"}, {"approval": "given" if target in QUEUED | {"claimed"} else "wanted"}
    if target is OutboxStatus.APPROVAL:
        before = {"unfrozen": "undecided", "pending": None, "waiting": None, "claimed": None}
        return {"approval": before.get(source, "wanted")}, {"approval": "wanted"}
    return {}, {}


Columns = Callable[[Any], dict[str, Any]]


def born(connection: Connection, role: str, table: str, states: Iterable[Any], columns: Columns) -> set[Any]:
    """The states in which a row of this table may begin, each as a pair."""
    plant = partial(shapes.plant, connection, "intents")
    inserts = {state: partial(shapes.insert, connection, table, **columns(state)) for state in states}
    return {(None, state) for state, insert in inserts.items() if refused(connection, role, plant, insert) is None}


def moved(
    connection: Connection, role: str, table: str, states: Iterable[Any], columns: Columns, leave: Callable[[], Any],
    fit: Callable[[Any, Any], tuple[dict[str, Any], dict[str, Any]]] = lambda source, target: ({}, {}),
) -> set[Any]:  # fmt: skip
    """Of every pair of states of this table those that go through, and the states out of which a row may leave."""

    def planted(state: Any, **more: Any) -> Callable[[], None]:
        tables = dict.fromkeys(("intents", table))
        return partial(shapes.plant, connection, *tables, **{table: columns(state) | more})

    found = {(state, None) for state in states if refused(connection, role, planted(state), leave) is None}
    for source, target in permutations(states, 2):
        before, after = fit(source, target)
        change = partial(shapes.update, connection, table, **columns(target) | after)
        error = refused(connection, role, planted(source, **before), change)
        if (source, target) == (OutboxStatus.HELD, OutboxStatus.CLAIMED):
            # Only an inline row: a worker's claim of a row at rest would be a send that nobody asked for.
            assert f"idem refuses this UPDATE of {table}" in str(error)
            error = refused(connection, role, planted(source, inline=True), change)
        if error is None:
            found.add((source, target))
        else:
            assert f"idem refuses this UPDATE of {table}" in str(error), (source, target, error)
    return found


@WHO
def test_hazard_61_exactly_the_listed_key_transitions_succeed(rolled_back: Connection, role: str, who: str) -> None:
    table, columns = "idempotency_keys", shapes.key_columns
    succeeded = born(rolled_back, role, table, KeyState, columns)
    succeeded |= moved(
        rolled_back, role, table, KeyState, columns, lambda: rolled_back.execute("DELETE FROM idem.idempotency_keys")
    )
    assert succeeded == listed(KEY_TRANSITIONS, who)


@WHO
def test_hazard_61_exactly_the_listed_outbox_transitions_succeed(rolled_back: Connection, role: str, who: str) -> None:
    def first(status: OutboxStatus) -> dict[str, Any]:
        inline = status is OutboxStatus.CLAIMED
        # A later step alone begins at rest.
        later = {"step": 2, "step_name": "ship"} if status is OutboxStatus.HELD else {}
        return shapes.row_columns(status) | {"inline": inline, "attempt": int(inline)} | later

    def settle() -> None:
        shapes.update(rolled_back, "intents", first=shapes.LEAVES, **shapes.intent_columns("completed"))

    succeeded = born(rolled_back, role, "outbox", OutboxStatus, first)
    assert not born(rolled_back, role, "outbox", [OutboxStatus.HELD], shapes.row_columns)
    succeeded |= moved(rolled_back, role, "outbox", OutboxStatus, shapes.row_columns, settle, approvals)
    assert succeeded == listed(OUTBOX_TRANSITIONS, who)


@WHO
def test_hazard_50_an_intent_moves_as_its_key_does(rolled_back: Connection, role: str) -> None:
    """The intent is the truth, one statement writes both; it is never expired and never deleted."""
    states = [state for state in KeyState if state is not KeyState.EXPIRED]
    succeeded = moved(
        rolled_back, role, "intents", states, shapes.intent_columns,
        lambda: rolled_back.execute("DELETE FROM idem.intents"),
    )  # fmt: skip
    of_keys = pairs(KEY_TRANSITIONS)
    assert succeeded == {(s, t) for s, t in of_keys if {s, t}.isdisjoint({None, KeyState.EXPIRED})}


def test_the_database_knows_which_dead_letters_block_a_retry(rolled_back: Connection) -> None:
    blocking = rolled_back.execute(
        "SELECT array_agg(r) FROM unnest(%s::text[]) AS r WHERE idem.blocks_retry(r)", [list(Reason)]
    ).fetchone()
    assert blocking is not None and set(blocking[0]) == BLOCKS_RETRY


@WHO
@pytest.mark.parametrize("status", list(OutboxStatus))
def test_hazard_6_a_row_leaves_only_when_its_step_is_done(
    rolled_back: Connection, role: str, status: OutboxStatus
) -> None:
    """The next step's row, which the owner's functions write, is a reason for the one before it to leave."""

    def plant() -> None:
        shapes.plant(rolled_back, "intents", "outbox", outbox=shapes.row_columns(status))

    error = refused(rolled_back, role, plant, lambda: rolled_back.execute("DELETE FROM idem.outbox"))
    assert "idem refuses this DELETE of outbox row" in str(error)

    def followed(step: int) -> None:
        rolled_back.execute("RESET ROLE")
        name = "ship" if step > 1 else None
        shapes.insert(rolled_back, "outbox", first=shapes.LEAVES, id=shapes.INTENT, step=step, step_name=name)

    assert refused(rolled_back, role, plant, partial(followed, 2)) is None
    assert "idem refuses this DELETE of outbox row" in str(refused(rolled_back, role, plant, partial(followed, 1)))


@WHO
@pytest.mark.parametrize("key", [None, *KeyState])
@pytest.mark.parametrize("status", list(OutboxStatus))
def test_a_row_at_rest_leaves_when_nobody_can_take_it_up(
    rolled_back: Connection, role: str, status: OutboxStatus, key: KeyState | None
) -> None:
    """Its key has expired, or its tombstone has gone too; and nothing of ours is to follow."""

    def plant(**more: Any) -> None:
        at_rest = {"intents": shapes.intent_columns("failed_retryable"), "outbox": shapes.row_columns(status) | more}
        shapes.plant(rolled_back, "intents", "outbox", **at_rest)
        if key is not None:
            shapes.plant(rolled_back, "idempotency_keys", idempotency_keys=shapes.key_columns(key))

    def leave() -> None:
        rolled_back.execute("DELETE FROM idem.outbox")

    may = status is OutboxStatus.HELD and key in (None, KeyState.EXPIRED)
    assert (refused(rolled_back, role, plant, leave) is None) == may
    if status is OutboxStatus.HELD:
        for open_still in ({"redrive_at": shapes.NOW}, {"doubted_since": shapes.NOW}):
            error = refused(rolled_back, role, lambda more=open_still: plant(**more), leave)
            assert "idem refuses this DELETE of outbox row" in str(error)


def test_hazard_6_the_statement_that_deletes_a_row_is_the_one_that_ends_its_step(installed: Any) -> None:
    """What comes after it in the transaction does not count, and the row is still there."""
    with psycopg.connect(installed.superuser_url) as superuser:
        shapes.plant(superuser, "intents", "outbox")
    with psycopg.connect(installed.url("daemon")) as daemon:
        with pytest.raises(psycopg.errors.CheckViolation, match="leaves only in the statement that completes"):
            daemon.execute("DELETE FROM idem.outbox")
        daemon.rollback()
        assert daemon.execute("SELECT count(*) FROM idem.outbox").fetchone() == (1,)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("status", list(OutboxStatus))
def test_only_an_inline_row_is_born_claimed(rolled_back: Connection, status: OutboxStatus, inline: bool) -> None:
    shapes.plant(rolled_back, "intents")
    columns = shapes.row_columns(status) | {"inline": inline, "attempt": int(inline)}
    may = (status in ("approval", "pending", "waiting", "unfrozen") and not inline) or (status == "claimed" and inline)
    with nullcontext() if may else pytest.raises(psycopg.errors.CheckViolation):
        shapes.insert(rolled_back, "outbox", **columns)


@WHO
@pytest.mark.parametrize("table", ["outbox", "idempotency_keys", "intents", "requests", "evidence", "events"])
def test_no_truncate_opens_a_way_around_the_rows(rolled_back: Connection, role: str, table: str) -> None:
    error = refused(rolled_back, role, lambda: None, lambda: rolled_back.execute(f"TRUNCATE idem.{table} CASCADE"))
    assert isinstance(error, psycopg.errors.CheckViolation | psycopg.errors.InsufficientPrivilege)

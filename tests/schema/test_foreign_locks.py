"""Whatever row another session holds, no statement about a batch waits for it: only that row is left for later.

Every statement of the daemons runs over the backlog; the rows that it touches are found by their `xmax`; then another
session holds one of them (the first, and the last, of each table), and the statement runs again. A statement that is
added to the code is tried without being named here.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from fix_sql import query
from schema import foreign_locks, hot_statements
from schema.databases import new_database

ONE: Final = "is about one row, intent, event or entry: whoever runs it leaves that one, and goes on with the next"
AFTER: Final = "runs in a transaction that holds these rows by an earlier statement, which skips what is locked"
PERSON: Final = "is a person's command about one thing: it says that this is locked, and changes nothing"
SHORT: Final = "waits for ten milliseconds, and then the gate takes the batch, which skips what is locked"
OWNER: Final = "can be held by the schema's owner alone, and what waits then is only the deletion of old history"
WAITS: Final = {
    "commonest.COMPLETE_SUCCEEDED": SHORT,
    "attempts.BEGIN_CANCEL": ONE, "attempts.BEGIN_REPLAY": ONE, "claim.MARK_START": ONE, "renewal.RENEW": ONE,
    "record.BURY": ONE, "record.BURY_DISCREPANCY": ONE, "record.BURY_UNMATCHED": ONE, "record.EMIT": ONE,
    "record.NOTE": ONE, "record.NOTE_OPERATOR": PERSON,
    "proofs.DONE": ONE, "proofs.DROP": ONE, "proofs.OBJECT_END": AFTER, "proofs.STORE": ONE,
    "results.REMEMBER_ERROR": ONE, "locked_rows.LOCK": ONE,
    "failures.DROP": ONE, "failures.FAIL": ONE, "hints.DROP": ONE, "hints.KEEP": ONE,
    "fetch_claim.HINT_ENDED": ONE, "fetch_claim.HINT_IS_EARLY": ONE, "fetch_claim.PUT_OFF": ONE, "ingest.CONFIRM": ONE,
    "ingest.WRITE_FATE": ONE,
    "waiting_events.FAILED": ONE, "waiting_events.CLOSE": ONE,
    "discrepancies.STATE": ONE,
    "key_rotation.REKEY": AFTER, "freezing.FREEZE": AFTER, "local_rows.LABEL": AFTER,
    "tenant_counts.COUNT_KEYS": AFTER,
    "quarantine.DOUBT_OPEN": AFTER, "takeover.SENT": AFTER, "tenant_counts.MOVE_MARKS": AFTER,
    "tenant_counts.SUBTRACT": AFTER,
    "dead_letters.LOCK_EVENT": PERSON, "dead_letters.LOCK_INTENT": PERSON,
    "dead_letters.NOTE_TRY": PERSON, "dead_letters.RESOLVE": PERSON, "dead_letters.TRY_EVENT": PERSON,
    "stopped.RESUME": PERSON,
    "stopped.SKIP": PERSON,
    "history.DELETE_EVENTS": OWNER, "doubted_rows.TAKE_BACK": PERSON,
}  # fmt: skip
"""Statements that may wait for a row of another session, and why that keeps nothing else waiting."""

DUE_LATER = """
UPDATE idem.outbox SET available_at = statement_timestamp() + interval '1 hour', failures = 1
 WHERE id IN (SELECT id FROM idem.outbox WHERE status = 'unknown' AND claim_token IS NULL
               ORDER BY id DESC LIMIT 300)
"""


@pytest.fixture(scope="module")
def sessions(server: str, loaded: str) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    """Two sessions, planned as the daemons' are; some rows are made such as only a hastening touches."""
    with new_database(server, template=urlsplit(loaded).path[1:]) as url:
        query(url, DUE_LATER)
        with psycopg.connect(url) as own, psycopg.connect(url) as other:
            own.execute("SET enable_seqscan = off")
            own.execute("SET plan_cache_mode = force_generic_plan")
            own.commit()
            yield own, other


@pytest.mark.parametrize("name", hot_statements.statements())
def test_a_row_that_another_session_holds_keeps_no_other_waiting(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]], name: str
) -> None:
    own, other = sessions
    statement, values = hot_statements.statements()[name], hot_statements.values(own)(name)
    own.rollback()
    touched = foreign_locks.touched(own, other, statement, values)
    waited = {
        table: places
        for table, rows in touched.items()
        if (places := [row for row in rows if foreign_locks.waits(own, other, statement, values, table, row)])
    }
    assert not waited or name in WAITS, (
        f"{name} waits for a row of {', '.join(waited)} that another session holds: skip what is locked and leave it "
        "for later, or say in WAITS why nothing else waits with it"
    )


def test_what_may_wait_is_there() -> None:
    assert WAITS.keys() <= hot_statements.statements().keys()


BATCHES: Final = (
    "gate.WRITE", "claim.CLAIM", "due.CLAIM_DUE", "due.HASTEN_LANE", "quiet_time.RAISE_QUIET", "change_pages.LOCK",
    "expired_keys.ROWS_AT_REST",
    "expired_keys.EXPIRE", "expired_keys.DELETE_TOMBSTONES", "tenant_counts.LOCK_COUNTS", "stored.DUE_REDRIVES",
    "retries.CLAIM_EVENTS",
    "fetch_claim.CLAIM_HINTS", "unfrozen.PICK", "missing_steps.MISSING", "queue.FIND", "queue.EXPAND", "queue.REGISTER",
    "history.DELETE_EVIDENCE",
    "history.DELETE_REQUESTS", "history.DELETE_WEBHOOK_EVENTS",
)  # fmt: skip
"""Statements that carry the daemons' work."""


@pytest.mark.parametrize("name", BATCHES)
def test_the_statements_of_batches_do_touch_rows_here(
    sessions: tuple[psycopg.Connection[Any], psycopg.Connection[Any]], name: str
) -> None:
    """Else nothing was tried above: a batch that finds no row in the backlog waits for none."""
    own, other = sessions
    values = hot_statements.values(own)(name)
    own.rollback()
    assert foreign_locks.touched(own, other, hot_statements.statements()[name], values)

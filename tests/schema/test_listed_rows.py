"""No statement of the daemons changes a row that recovery has listed and not doubted yet (`idem.doubts`).

Every statement of the daemons runs over the backlog, all of whose open rows are listed. A statement that is added to
the code is tried without being named here.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from schema import hot_statements
from schema.databases import new_database

TIME: Final = "moves a due time, or the end of a lease that somebody has already: nothing is sent or decided by it"
GUARDED: Final = "runs under a lock whose holder has asked (`holding`, `unfrozen.PICK`), or on a row made just now"
WORK: Final = "is how the list is worked off, or taken back"
SEEN: Final = "notes what was seen of a row, and decides nothing"
CHANGES: Final = {
    "renewal.RENEW": TIME, "due.HASTEN": TIME, "due.HASTEN_LANE": TIME, "quiet_time.RAISE_QUIET": TIME,
    "pause.HASTEN_PAUSED": TIME,
    "key_rotation.REKEY": GUARDED, "takeover.SENT": GUARDED, "results.REMEMBER_ERROR": SEEN,
    "quarantine.DOUBT_OPEN": WORK, "quarantine.SENT_THEN": WORK,
    "release.BELIEVE": WORK,
}  # fmt: skip
"""Statements that may change a listed row, and why that does no harm."""

CHANGED = """
SELECT (SELECT count(*) FROM idem.outbox o
         WHERE o.xmin = pg_current_xact_id_if_assigned()::xid)::integer,
       (SELECT count(*) FROM idem.outbox)::integer
"""


@pytest.fixture(scope="module")
def listed(server: str, loaded: str) -> Iterator[psycopg.Connection[Any]]:
    """A session over a backlog whose every open row is listed."""
    with new_database(server, template=urlsplit(loaded).path[1:]) as url, psycopg.connect(url) as own:
        own.execute("SET enable_seqscan = off")
        own.execute(hot_statements.statements()["doubted_rows.LIST"], {"details": "{}"})  # type: ignore[call-overload]
        own.commit()
        yield own


def changed(own: psycopg.Connection[Any], name: str) -> int:
    """How many rows of the outbox a statement changes or deletes here. It is rolled back."""
    statement, values = hot_statements.statements()[name], hot_statements.values(own)(name)
    own.rollback()
    before = own.execute("SELECT count(*) FROM idem.outbox").fetchone()
    own.execute(statement, values)  # type: ignore[call-overload]
    after = own.execute(CHANGED).fetchone()
    own.rollback()
    assert before and after
    return int(after[0] + before[0] - after[1])


@pytest.mark.parametrize("name", hot_statements.statements())
def test_a_listed_row_is_left_alone(listed: psycopg.Connection[Any], name: str) -> None:
    assert not changed(listed, name) or name in CHANGES, (
        f"{name} changes a row that recovery has still to doubt: ask for idem.doubts (`doubted_rows.O_IS_LISTED`), or "
        "say in CHANGES why that does no harm"
    )


def test_what_may_change_a_listed_row_is_there() -> None:
    assert CHANGES.keys() <= hot_statements.statements().keys()


@pytest.mark.parametrize(
    "name", ["claim.CLAIM", "due.CLAIM_DUE", "gate.WRITE", "claim.MARK_START", "start_marks.MARK_STARTS"]
)
def test_the_same_statement_changes_rows_that_are_not_listed(listed: psycopg.Connection[Any], name: str) -> None:
    """Else nothing was tried above."""
    with psycopg.connect(listed.info.dsn, password=listed.info.password) as own:
        own.execute("SET enable_seqscan = off")
        own.execute("DELETE FROM idem.doubts")
        statement, values = hot_statements.statements()[name], hot_statements.values(own)(name)
        own.execute(statement, values)  # type: ignore[call-overload]
        after = own.execute(CHANGED).fetchone()
        own.rollback()
    assert after and after[0] > 0

"""reserve, submit and complete: two halves of accept around the caller's own writes, in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import namedtuple_row
from schema import shapes
from schema.databases import Installed

Connection = psycopg.Connection[Any]
ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
WRITTEN = ("intents", "idempotency_keys", "outbox", "requests", "evidence")
NOTHING = dict.fromkeys((*WRITTEN, "events"), 0)
SUBMITTED = dict.fromkeys(WRITTEN, 1) | {"events": 0}
COMPLETED = {"intents": 1, "idempotency_keys": 1, "outbox": 0, "requests": 0, "evidence": 1, "events": 1}

RESERVE = """
SELECT d.* FROM idem.reserve('t', 'pay', %(key)s, %(fingerprint)s, '72 h', '15 min', false, true, 'p', 'a') AS d
"""
SUBMIT = """
SELECT idem.submit(%(intent)s, 't', 'pay', %(key)s, '{"amount": 1}', 'a label', 'p', 'a', 'https://p.test',
                   %(provider_key)s, 'POST', '/payments', '{}', 'body', '15 min', 86400, false, NULL)
"""
COMPLETE = """
SELECT idem.complete(%(intent)s, 't', 'pay', %(key)s, '{"amount": 1}', 'a label', %(outcome)s, %(status)s,
                     '{"a": "b"}', 'the answer', %(ttl)s::interval)
"""
ACCEPT = """
SELECT d.* FROM idem.accept('t', 'pay', %(key)s, 'v1:1', '{"amount": 1}', NULL, 'p', 'a', 'https://p.test',
    %(provider_key)s, 'POST', '/', '{}', 'body', '72 h', '15 min', 0, false, NULL) AS d
"""


def reserve(connection: Connection, key: str = "k", fingerprint: str = "v1:1") -> Any:
    cursor = connection.cursor(row_factory=namedtuple_row)
    return cursor.execute(RESERVE, {"key": key, "fingerprint": fingerprint}).fetchone()


def submit(connection: Connection, intent: UUID, key: str = "k", statement: str = SUBMIT) -> None:
    own = shapes.derived(connection, "t", "pay", key)
    connection.execute(statement, {"intent": intent, "key": key, "provider_key": own})


def complete(
    connection: Connection, intent: UUID, key: str = "k", outcome: str = "local", status: int | None = 201,
    ttl: str = "24 h",
) -> None:  # fmt: skip
    connection.execute(COMPLETE, {"intent": intent, "key": key, "outcome": outcome, "status": status, "ttl": ttl})


def accept(connection: Connection, key: str = "k") -> Any:
    cursor = connection.cursor(row_factory=namedtuple_row)
    return cursor.execute(ACCEPT, {"key": key, "provider_key": shapes.derived(connection, "t", "pay", key)}).fetchone()


@contextmanager
def refused(connection: Connection, match: str) -> Iterator[pytest.ExceptionInfo[psycopg.errors.CheckViolation]]:
    """What is tried in here is refused with these words, and the transaction goes on."""
    with pytest.raises(psycopg.errors.CheckViolation, match=match) as caught, connection.transaction():
        yield caught


@dataclass
class Bench:
    """A database of the test's own, used by the role of a producer, looked at from outside."""

    installed: Installed

    @contextmanager
    def open(self, isolation: str = "READ COMMITTED", role: str = "producer") -> Iterator[Connection]:
        """A transaction in which no wait can hang: whoever waits for a lock fails."""
        with psycopg.connect(self.installed.url(role)) as connection:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            connection.execute("SET LOCAL lock_timeout = '2s'")
            connection.execute("SET LOCAL statement_timeout = '10s'")
            yield connection

    def counts(self) -> dict[str, int]:
        with psycopg.connect(self.installed.superuser_url) as look:
            return {t: look.execute(f"SELECT count(*) FROM idem.{t}").fetchone()[0] for t in NOTHING}  # type: ignore[index]

    def one(self, query: str) -> Any:
        with psycopg.connect(self.installed.superuser_url) as look:
            rows = look.cursor(row_factory=namedtuple_row).execute(query).fetchall()  # type: ignore[call-overload]
            assert len(rows) == 1, rows
            return rows[0]

    def rest(self, *, frozen: bool = True, **columns: Any) -> None:
        """Submit, and move it past the triggers to where it can get by legal ways; `frozen`: with its request."""
        with self.open() as connection:
            submit(connection, reserve(connection).intent_id)
        with psycopg.connect(self.installed.superuser_url) as superuser:
            superuser.execute(shapes.UNTRIGGERED)
            if not frozen:
                superuser.execute("DELETE FROM idem.requests")
            shapes.update(superuser, "idempotency_keys", **shapes.key_columns("failed_retryable"))
            shapes.update(superuser, "intents", **shapes.intent_columns("failed_retryable"))
            shapes.update(superuser, "outbox", **(shapes.row_columns("held") | columns))


@pytest.fixture
def bench(installed: Installed) -> Bench:
    return Bench(installed)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_reserve_then_submit_is_one_accept(bench: Bench, isolation: str) -> None:
    with bench.open(isolation) as connection:
        decided = reserve(connection)
        assert (decided.decision, decided.status) == ("reserved", None)
        assert decided.expires_at is not None
        assert bench.counts() == NOTHING
        submit(connection, decided.intent_id)
        own = shapes.derived(connection, "t", "pay", "k")
    assert bench.counts() == SUBMITTED
    row = bench.one(
        "SELECT o.status, o.provider_key, o.start_before - o.available_at AS patience, k.reserved, k.state, n.label,"
        " r.body, e.kind, e.to_status FROM idem.outbox o JOIN idem.idempotency_keys k USING (intent_id)"
        " JOIN idem.intents n ON n.id = o.intent_id JOIN idem.requests r ON r.outbox_id = o.id"
        " JOIN idem.evidence e ON e.outbox_id = o.id"
    )
    assert row[:2] + row[3:] == (
        "pending", own, False, "in_progress", "a label", b"body", "accepted", "pending",
    )  # fmt: skip
    assert row.patience.total_seconds() == 900
    with bench.open(isolation) as connection:
        again = reserve(connection)
        assert (again.decision, again.intent_id, again.status) == ("in_progress", decided.intent_id, "pending")
        assert reserve(connection, fingerprint="v1:2").decision == "mismatch"
    assert bench.counts() == SUBMITTED


def test_hazard_24_due_times_begin_when_it_is_submitted(bench: Bench) -> None:
    """The caller's transaction may be old by then: `now()` would be its beginning."""
    with bench.open() as connection:
        decided = reserve(connection)
        connection.execute("SELECT pg_sleep(0.3)")
        submit(connection, decided.intent_id)
        late = connection.execute(
            "SELECT o.available_at - now() > '0.3 s', n.requested_at - now() > '0.3 s',"
            " o.start_before - now() > '900.3 s'"
            " FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id"
        ).fetchone()
        assert late == (True, True, True)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_hazard_66_reserve_without_submit_does_not_commit(bench: Bench, isolation: str) -> None:
    with bench.open(isolation) as connection:
        connection.execute("CREATE TEMPORARY TABLE theirs (id integer)")
        assert reserve(connection).decision == "reserved"
        with pytest.raises(psycopg.errors.CheckViolation) as caught:
            connection.commit()
        assert connection.execute("SELECT to_regclass('theirs')").fetchone() == (None,)
    assert bench.counts() == NOTHING
    said = caught.value.diag
    assert said.constraint_name == "reserved_key_is_submitted"
    assert said.message_primary == (
        "idem: key 'k' of operation 'pay' was reserved in this transaction, and nothing was submitted"
    )
    hint = said.message_hint or ""
    assert all(word in hint for word in ("submit", "complete", "refuse", "SET CONSTRAINTS ALL IMMEDIATE"))
    with bench.open(isolation) as connection:
        assert reserve(connection).decision == "reserved"
        connection.rollback()


def test_hazard_75_set_constraints_makes_the_check_at_once(bench: Bench) -> None:
    with bench.open() as connection:
        decided = reserve(connection)
        with refused(connection, "nothing was submitted"):
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        submit(connection, decided.intent_id)
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert bench.counts() == SUBMITTED


def test_a_key_still_needs_an_intent_by_the_commit(bench: Bench) -> None:
    """The foreign key looks later than it did, and is there all the same."""
    with psycopg.connect(bench.installed.superuser_url) as connection:
        shapes.insert(connection, "idempotency_keys")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.commit()


@pytest.mark.parametrize("submits", [True, False])
def test_a_reservation_goes_with_its_savepoint(bench: Bench, submits: bool) -> None:
    with bench.open() as connection:
        connection.execute("SAVEPOINT before")
        lost = reserve(connection)
        if submits:
            submit(connection, lost.intent_id)
        connection.execute("ROLLBACK TO SAVEPOINT before")
        with bench.open() as other:  # free for everybody at once, not only after this transaction
            assert reserve(other).decision == "reserved"
            other.rollback()
        with pytest.raises(psycopg.errors.CheckViolation, match="holds no reservation"):
            submit(connection, lost.intent_id)
        connection.execute("ROLLBACK TO SAVEPOINT before")
        again = reserve(connection)
        assert (again.decision, again.intent_id == lost.intent_id) == ("reserved", False)
        submit(connection, again.intent_id)
    assert bench.counts() == SUBMITTED


def test_a_submit_that_is_rolled_back_leaves_the_reservation_open(bench: Bench) -> None:
    with bench.open() as connection:
        decided = reserve(connection)
        connection.execute("SAVEPOINT before")
        submit(connection, decided.intent_id)
        connection.execute("ROLLBACK TO SAVEPOINT before")
        with pytest.raises(psycopg.errors.CheckViolation, match="nothing was submitted"):
            connection.commit()
    assert bench.counts() == NOTHING


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_hazard_23_56_another_request_never_waits(bench: Bench, isolation: str) -> None:
    """It is `in_progress` at once, and its own transaction goes on."""
    with bench.open(isolation) as first, bench.open(isolation) as second:
        decided = reserve(first)
        assert (reserve(second).decision, accept(second).decision) == ("in_progress", "in_progress")
        submit(first, decided.intent_id)
        assert reserve(second).decision == "in_progress"
        first.commit()
        assert second.execute("SELECT 1").fetchone() == (1,)
        second.commit()
    assert bench.counts() == SUBMITTED


@pytest.mark.parametrize("isolation", ISOLATIONS[1:])
def test_a_winner_that_the_snapshot_does_not_show_is_40001(bench: Bench, isolation: str) -> None:
    with bench.open(isolation) as late:
        late.execute("SELECT count(*) FROM idem.intents")
        with bench.open() as winner:
            submit(winner, reserve(winner).intent_id)
        with pytest.raises(psycopg.errors.SerializationFailure):
            reserve(late)
        late.rollback()
    with bench.open(isolation) as again:
        assert reserve(again).decision == "in_progress"


def test_what_is_final_is_answered_while_somebody_holds_the_keys_lock(bench: Bench) -> None:
    """Hazard 56."""
    with bench.open() as connection:
        complete(connection, reserve(connection).intent_id)
    with bench.open() as holder, bench.open() as retry:
        holder.execute("SET ROLE NONE")
        holder.execute("SELECT pg_advisory_xact_lock(idem.key_lock(lock_seed, 't', 'pay', 'k')) FROM idem.installation")
        answered = reserve(retry)
        assert (answered.decision, answered.response_status) == ("replay", 201)
        assert bytes(answered.response_body) == b"the answer"


def test_the_second_reserve_of_one_transaction_is_a_retry(bench: Bench) -> None:
    with bench.open() as connection:
        decided = reserve(connection)
        assert reserve(connection).decision == "in_progress"
        assert accept(connection).decision == "in_progress"
        submit(connection, decided.intent_id)
    assert bench.counts() == SUBMITTED


@pytest.mark.parametrize("what", ["unreserved", "other intent", "other key", "twice", "after complete", "committed"])
def test_only_the_holder_of_a_reservation_submits_and_once(bench: Bench, what: str) -> None:
    key = "k"
    with bench.open() as connection:
        intent = shapes.INTENT
        if what != "unreserved":
            decided = reserve(connection)
            intent = shapes.INTENT if what == "other intent" else decided.intent_id
            key = "other" if what == "other key" else "k"
        if what in ("twice", "committed"):
            submit(connection, intent)
        if what == "after complete":
            complete(connection, intent)
        if what == "committed":
            connection.commit()
        for second_half in (submit, complete):
            with refused(connection, "this transaction holds no reservation") as caught:
                second_half(connection, intent, key)
            assert caught.value.diag.constraint_name == "submitted_key_is_reserved"
        connection.rollback()


@pytest.mark.parametrize(("outcome", "status"), [("local", 201), ("refused", 409), ("local", 303)])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_hazard_47_complete_is_the_end_in_the_same_transaction(
    bench: Bench, outcome: str, status: int, isolation: str
) -> None:
    with bench.open(isolation) as connection:
        decided = reserve(connection)
        complete(connection, decided.intent_id, outcome=outcome, status=status, ttl="1000 h")
    assert bench.counts() == COMPLETED
    row = bench.one(
        "SELECT n.state, n.outcome, n.provider, n.account, n.settled_at = k.completed_at AS together, k.state AS key,"
        " k.reserved, k.expires_at - k.completed_at AS lives, e.source, e.kind, e.from_state, e.to_state, v.type,"
        " v.number, v.payload FROM idem.intents n JOIN idem.idempotency_keys k ON k.intent_id = n.id"
        " JOIN idem.evidence e ON e.intent_id = n.id JOIN idem.events v ON v.aggregateid = n.id"
    )
    assert row[:7] == ("completed", outcome, None, None, True, "completed", False)
    assert row.lives.total_seconds() == 1000 * 3600
    assert row[8:14] == ("accept", "completed", "in_progress", "completed", "completed", 1)
    assert row.payload.items() >= {
        "intent": str(decided.intent_id), "tenant": "t", "operation": "pay", "state": "completed", "outcome": outcome,
        "provider_reference": None,
    }.items()  # fmt: skip
    with bench.open(isolation) as connection:
        again = reserve(connection)
        assert (again.decision, again.response_status, again.response_headers) == ("replay", status, {"a": "b"})
        assert bytes(again.response_body) == b"the answer"


@pytest.mark.parametrize(("outcome", "status"), [("local", 500), ("local", 503), ("local", None), ("local", 102),
                                                 ("succeeded", 201), ("cancelled", 409)])  # fmt: skip
def test_hazard_47_what_no_caller_may_store_for_ever(bench: Bench, outcome: str, status: int | None) -> None:
    with bench.open() as connection:
        decided = reserve(connection)
        with pytest.raises(psycopg.errors.CheckViolation, match=r"^idem(: | refuses this answer: )"):
            complete(connection, decided.intent_id, outcome=outcome, status=status)
        connection.rollback()
    assert bench.counts() == NOTHING


@pytest.mark.parametrize(("frozen", "status"), [(True, "pending"), (False, "unfrozen")])
def test_hazard_66_a_key_at_rest_goes_back_to_work_inside_reserve(bench: Bench, frozen: bool, status: str) -> None:
    """What was never rendered goes back to be rendered."""
    bench.rest(frozen=frozen, start_before=shapes.NOW)
    with bench.open() as connection:
        again = reserve(connection)
        assert (again.decision, again.status, again.due_in) == ("retrying", status, 0)
        with bench.open() as other:  # nobody waits for the winner's transaction
            assert reserve(other).decision == "in_progress"
    row = bench.one("SELECT o.status, k.state, o.start_before > now() AS young FROM idem.outbox o"
                    " JOIN idem.idempotency_keys k USING (intent_id)")  # fmt: skip
    assert row == (status, "in_progress", True)
    assert bench.one("SELECT to_status FROM idem.evidence WHERE kind = 'retried'") == (status,)


@pytest.mark.parametrize("how", [reserve, accept])
def test_an_inline_row_is_taken_up_by_its_caller_alone(bench: Bench, how: Any) -> None:
    bench.rest(inline=True)
    with bench.open() as connection:
        assert how(connection).decision == "failed_retryable", "it stays at rest, and its caller hears so"
    assert bench.one("SELECT status FROM idem.outbox") == ("held",)


def test_nobody_but_its_own_transaction_sees_a_reservation(bench: Bench) -> None:
    """Neither sweeper nor doctor need know of it: committed, there is none, and no UPDATE makes one."""
    with bench.open() as connection:
        decided = reserve(connection)
        with bench.open(role="daemon") as daemon:
            assert daemon.execute("SELECT count(*) FROM idem.idempotency_keys").fetchone() == (0,)
        submit(connection, decided.intent_id)
    with bench.open(role="daemon") as daemon, refused(daemon, "refuses this UPDATE of idempotency_keys"):
        daemon.execute("UPDATE idem.idempotency_keys SET reserved = true")


def test_a_reserved_key_does_not_move_before_it_is_submitted(bench: Bench) -> None:
    with bench.open(role="daemon") as connection:
        reserve(connection)
        for state in ("completed", "failed_retryable", "unknown"):
            with refused(connection, "refuses this UPDATE of idempotency_keys"):
                shapes.update(connection, "idempotency_keys", **shapes.key_columns(state))
        connection.rollback()


def test_no_worker_ever_finds_an_operation_without_a_provider(bench: Bench) -> None:
    with bench.open() as connection:
        decided = reserve(connection)
        with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT of outbox"):
            local = SUBMIT.replace("'p', 'a', 'https://p.test'", "'local', 'local', 'local://'")
            submit(connection, decided.intent_id, statement=local)
        connection.rollback()

"""No role of a program releases a call that nobody has approved: only the function does, for who may call it."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fix_accept import Acceptor
from fix_spine import catalogue, operation
from fix_sql import engine_of
from producers.application import accept, synced
from schema import shapes
from schema.databases import Installed, as_role
from schema.sessions import session

from idem.decisions import Accepted
from idem.migrations import runner
from idem.outbox.domain.states import OutboxStatus

Connection = psycopg.Connection[Any]
REFUSED = (psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)
KINDS = ("daemon", "operator", "producer", "sql")
RAW = {
    "pending": "UPDATE idem.outbox SET status = 'pending'",
    "pending, said to be approved": "UPDATE idem.outbox SET status = 'pending', approval = 'given'",
    "pending, said to need none": "UPDATE idem.outbox SET status = 'pending', approval = NULL",
    "unfrozen": "UPDATE idem.outbox SET status = 'unfrozen', approval = 'given'",
    "unfrozen, undecided": "UPDATE idem.outbox SET status = 'unfrozen', approval = 'undecided'",
    "waiting": "UPDATE idem.outbox SET status = 'waiting', approval = NULL, ordering_key = 'o'",
    "claimed": "UPDATE idem.outbox SET status = 'claimed', attempt = 1, claim_token = gen_random_uuid(),"
    " claimed_by = 'w', claimed_at = now(), claimed_until = now() + '1 h'",
    "approved where it is": "UPDATE idem.outbox SET approval = 'given'",
    "undecided": "UPDATE idem.outbox SET approval = 'undecided'",
    "of anybody": "UPDATE idem.outbox SET approval = 'wanted'",
    "by way of rest": "UPDATE idem.outbox SET status = 'held'; UPDATE idem.outbox SET status = 'pending'",
    "by way of rest, approved": "UPDATE idem.outbox SET status = 'held'; UPDATE idem.outbox SET status = 'pending',"
    " approval = 'given'",
    "by way of rest, needs none": "UPDATE idem.outbox SET status = 'held', approval = NULL",
    "a replay of what is unknown": "UPDATE idem.outbox SET status = 'unknown'; UPDATE idem.outbox SET attempt = 1",
    "another row": "DELETE FROM idem.outbox; INSERT INTO idem.outbox (id, intent_id, available_at, start_before,"
    " status_since, provider_key, status, operation, provider, account, origin) SELECT gen_random_uuid(), id, now(),"
    " now() + '1 h', now(), gen_random_uuid(), 'pending', operation, provider, account, 'o' FROM idem.intents",
    "gone": "DELETE FROM idem.outbox",
    "another asker": "UPDATE idem.intents SET asked_by = 'nobody'",
    "an approved intent": "UPDATE idem.intents SET approval = 'given'",
    "an intent that needs none": "UPDATE idem.intents SET approval = NULL",
    "no trigger": "ALTER TABLE idem.outbox DISABLE TRIGGER ALL",
    "no check": "ALTER TABLE idem.outbox DROP CONSTRAINT unapproved_row_is_not_queued",
    "replication": "SET session_replication_role = replica; UPDATE idem.outbox SET approval = 'given'",
    "its retry": "SELECT idem.client_retry(k, '1 h') FROM idem.idempotency_keys k",
    "the queue": "SELECT idem.queue_call(id, operation, provider, account, 'o', gen_random_uuid(), 'POST', '/', '{}',"
    " '', '1 h', 0, false, NULL, NULL, NULL, NULL, false, NULL) FROM idem.intents",
}  # fmt: skip
APPROVE = "SELECT idem.approve(id, version, 'ada', 'known', '1 h') FROM idem.intents WHERE id = %s"


@pytest.fixture
def people(installed: Installed) -> Iterator[dict[str, str]]:
    """A role of each kind."""
    names = {kind: f"idem_{kind}_{os.getpid()}_approvals" for kind in KINDS}
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        for kind, name in names.items():
            admin.execute(f"CREATE ROLE {name} NOSUPERUSER")
            runner.grant(installed.url("owner"), name, kind, ["t"] if kind == "sql" else [])  # type: ignore[arg-type]
        yield names
        for name in names.values():
            admin.execute(f"DROP OWNED BY {name}")
            admin.execute(f"DROP ROLE {name}")


def asked(installed: Installed, people: dict[str, str], **changes: Any) -> UUID:
    """A request that waits for a person, accepted by the library as its producer."""
    always = operation("pay.keyed", "keyed", **{"approve": lambda params: True, **changes})
    known = catalogue("http://127.0.0.1:9", **{"pay.keyed": always})
    with engine_of(as_role(installed.superuser_url, people["producer"])).begin() as connection:
        acceptor = Acceptor(known.operations, known.providers)
        decided = acceptor.accept(connection, "t", "pay.keyed", "k", {"amount": 1}, asked_by="Grace@shop")
    assert isinstance(decided, Accepted) and decided.status == "approval"
    return decided.intent_id


def is_waiting(installed: Installed, intent: UUID) -> bool:
    with psycopg.connect(installed.superuser_url) as look:
        found = look.execute(
            "SELECT o.status, o.approval, n.approval, n.asked_by"
            "  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id WHERE n.id = %s", [intent],
        ).fetchall()  # fmt: skip
    return found == [("approval", "wanted", "wanted", "Grace@shop")]


@pytest.mark.parametrize("kind", KINDS)
def test_no_statement_of_a_role_releases_it(installed: Installed, people: dict[str, str], kind: str) -> None:
    intent = asked(installed, people)
    for what, statements in RAW.items():
        with session(installed, people[kind]) as connection:
            try:
                for statement in statements.split("; "):
                    connection.execute(statement)
                connection.commit()
            except REFUSED:
                connection.rollback()
            except psycopg.errors.lookup("55000"):
                connection.rollback()
        assert is_waiting(installed, intent), (kind, what)
    with session(installed, people[kind]) as connection:
        if kind != "operator":
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(APPROVE, [intent])
            return
        assert connection.execute(APPROVE, [intent]).fetchone() == ("pending",)
        connection.commit()
        told = connection.execute("SELECT database_role, details FROM idem.evidence WHERE kind = 'approved'").fetchall()
    assert told == [(people["operator"],
                     {"by": "ada", "reason": "known", "version": 1, "asked_by": "Grace@shop"})]  # fmt: skip


WORDS = {
    "nobody": ("", "r", 1, "say who approves it"),
    "no reason": ("ada", " ", 1, "say who approves it"),
    "another version": ("ada", "r", 7, "it changed after you read it"),
    "no version": ("ada", "r", None, "it changed after you read it"),
    "the one who asked": (" GRACE", "r", 1, "wants the approval of another person"),
    "the one who asked, elsewhere": ("grace@laptop", "r", 1, "wants the approval of another person"),
}


@pytest.mark.parametrize("word", WORDS)
def test_the_function_refuses_by_itself(installed: Installed, people: dict[str, str], word: str) -> None:
    by, reason, version, why = WORDS[word]
    intent = asked(installed, people, two_persons=True)
    with session(installed, people["operator"]) as connection:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=why):
            connection.execute("SELECT idem.approve(%s, %s, %s, %s)", [intent, version, by, reason])
        connection.rollback()
        assert connection.execute("SELECT idem.approve(%s, 1, 'ada', 'r')", [intent]).fetchone() == ("pending",)


def test_who_accepted_by_sql_does_not_approve_by_the_same_role(installed: Installed, people: dict[str, str]) -> None:
    """Whatever name is given: the role of the session is known."""
    known = catalogue("http://127.0.0.1:9")
    synced(installed.url("daemon"), known)
    both = people["operator"]
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO idem.producers (role, role_oid, tenant) SELECT rolname, oid, 't' FROM pg_roles"
            " WHERE rolname = %s",
            [both],
        )
    with session(installed, both) as connection:
        intent = accept(connection).intent_id
        connection.commit()
    with psycopg.connect(installed.superuser_url) as forced:
        forced.execute(shapes.UNTRIGGERED)
        forced.execute("UPDATE idem.outbox SET status = 'approval', approval = 'wanted_of_another'")
    with (
        session(installed, both) as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="another person"),
    ):
        connection.execute(APPROVE, [intent])


@pytest.mark.parametrize("status", [each for each in OutboxStatus if each is not OutboxStatus.APPROVAL])
def test_nothing_else_is_approved(rolled_back: Connection, status: OutboxStatus) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys", "outbox", outbox=shapes.row_columns(status))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"its row is {status}"):
        rolled_back.execute("SELECT idem.approve(id, version, 'ada', 'r') FROM idem.intents")


@pytest.mark.parametrize("approval", ["undecided", "wanted", "wanted_of_another"])
@pytest.mark.parametrize("status", ["pending", "claimed"])
def test_a_check_keeps_it_out_of_every_queue(rolled_back: Connection, status: str, approval: str) -> None:
    """The owner's own statement too."""
    with pytest.raises(psycopg.errors.CheckViolation, match="unapproved_row_is_not_queued"):
        shapes.plant(
            rolled_back, "intents", "outbox", outbox={**shapes.row_columns(status), "approval": approval}
        )  # fmt: skip


def test_no_row_begins_approved(rolled_back: Connection) -> None:
    shapes.plant(rolled_back, "intents", "idempotency_keys")
    with pytest.raises(psycopg.errors.CheckViolation, match="refuses this INSERT"):
        shapes.insert(rolled_back, "outbox", approval="given")

"""`idem.accept` in SQL: decisions, what is refused, roles, isolation levels, savepoints, two sessions with one key."""

import json
from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from fix_spine import Spine
from producers.application import Application, accept, synced
from psycopg import IsolationLevel

from idem.decisions import Accepted, Mismatch, Replay
from idem.outbox.domain import keys

LEVELS = list(IsolationLevel)[1:]


async def test_a_new_key_is_accepted_unfrozen(spine: Spine, application: Application) -> None:
    decision = application.once('"k 1"'.replace(" ", "-"), '{"amount": 1e2, "note": "\\u00e9"}')
    assert (decision.decision, decision.status) == ("accepted", "unfrozen")
    intent = UUID(str(decision.intent_id))
    row = await spine.row(intent)
    assert row and (row["status"], row["operation"], row["provider"], row["account"]) == (
        "unfrozen", "pay.keyed", "keyed", "keyed",
    )  # fmt: skip
    assert row["origin"] == spine.bank.url and row["replay_window"] == 86400 - 180 and not row["marks_start"]
    secret = (await spine.one("SELECT secret FROM idem.installation"))["secret"]
    assert row["provider_key"] == keys.provider_key(bytes(secret), "t", "pay.keyed", "k-1", 1, 1)
    key = await spine.key(intent)
    assert (key["idempotency_key"], key["state"], key["reserved"]) == ("k-1", "in_progress", False)
    assert key["fingerprint"] == keys.fingerprint("pay.keyed", {"amount": 100, "note": "é"})
    stored = await spine.one("SELECT params, requested_at, label FROM idem.intents WHERE id = %(i)s", i=intent)
    assert stored["params"] == {"amount": 100, "note": "é"} and isinstance(stored["params"]["amount"], int)
    assert await spine.evidence(intent) == [("accept", "accepted", None)]
    assert application.counts() == (1, 1, 1, 0)


async def test_hazard_70_one_wish_has_one_key_by_sql_and_by_python(spine: Spine, application: Application) -> None:
    intent = application.accepted("k1", '{ "amount" : 1.00e2 }')
    spelled = spine.accept('"k1"', 100)
    assert getattr(spelled, "intent_id", None) == intent and not isinstance(spelled, Accepted | Mismatch)
    assert isinstance(spine.accept("k1", 101), Mismatch)
    other = spine.accepted("k2", 100)
    assert application.once('"k2"').intent_id == other
    assert application.once("k2", {"amount": 101}).decision == "mismatch"


async def test_every_decision_reaches_the_caller(spine: Spine, application: Application) -> None:
    intent = application.accepted()
    assert application.once().decision == "in_progress"
    assert application.once(params={"amount": 1}).decision == "mismatch"
    await spine.work()
    done = application.once()
    assert (done.decision, done.intent_id, done.response_status) == ("replay", intent, 201)
    answer = spine.accept("k1", 100)
    assert isinstance(answer, Replay) and answer.answer.body == done.response_body
    assert spine.effects() == 1


async def test_hazard_38_card_data_is_refused_before_anything_is_stored(application: Application) -> None:
    number = "4111 1111 1111 1111"
    for params, place in (
        ({"amount": 1, "cvc": "123"}, "/cvc"),
        ({"amount": 1, "note": number}, "/note"),
        ({"a": [1, {"pan": {"b": "c"}}]}, "/a/1/pan"),
        ({"a": [1, [number]]}, "/a/1/0"),
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="must not be stored") as refused:
            application.once(params=params)
        assert f"(at {place})" in str(refused.value)
        assert "4111" not in str(refused.value) and "123" not in str(refused.value)
    assert application.counts() == (0, 0, 0, 0)


async def test_card_data_may_be_allowed(spine: Spine, application: Application) -> None:
    synced(spine.url, spine.know(card_data="allow"))
    application.accepted(params={"amount": 1, "cvc": "123"})


REFUSED = [
    ({"operation": "pay.nobody"}, "42704", "knows no operation 'pay.nobody'", "idem db sync"),
    ({"operation": "pay.inline"}, "0A000", "is inline", "from Python"),
    ({"operation": "pay.local"}, "0A000", "is local", "from Python"),
    ({"key": "a b"}, "22023", "no spaces", "255"),
    ({"key": None}, "22023", "it is missing", "255"),
    ({"key": "k" * 256}, "22023", "256 characters", "255"),
    ({"tenant": None}, "22023", "a tenant and params", "idem.accept("),
    ({"tenant": ""}, "22023", "a tenant and params", "idem.accept("),
    ({"tenant": "ü" * 128}, "22023", "this one has 256", "by its id"),
    ({"params": '{"a": 1, "a": 2}'}, "22023", "appears twice (at /a)", "Nothing was written"),
    ({"params": '{"a": 1e400}'}, "22023", "2^53-1", "as a string"),
    ({"params": json.dumps({"a": "x" * 2000})}, "22023", "more than 1000", "Nothing was written"),
]  # fmt: skip


async def test_what_is_refused_is_refused_with_what_to_do(spine: Spine, application: Application) -> None:
    spine.know("pay.inline", kind="inline")
    synced(spine.url, spine.know("pay.local", "local", kind="local"), max_bytes=1000)
    for wish, sqlstate, message, hint in REFUSED:
        with pytest.raises(psycopg.Error) as refused:
            application.once(**wish)  # type: ignore[arg-type]
        diag = refused.value.diag
        assert diag.sqlstate == sqlstate, wish
        assert message in str(diag.message_primary) and hint in str(diag.message_hint), wish
    assert application.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("level", LEVELS)
def test_everything_stands_or_falls_with_its_transaction(application: Application, level: IsolationLevel) -> None:
    with psycopg.connect(application.url) as connection:
        connection.isolation_level = level
        connection.execute("CREATE TABLE orders (id text PRIMARY KEY)")
        connection.commit()
        connection.execute("INSERT INTO orders VALUES ('1')")
        assert accept(connection).decision == "accepted"
        connection.rollback()
        assert application.counts() == (0, 0, 0, 0)
        connection.execute("INSERT INTO orders VALUES ('1')")
        assert accept(connection).decision == "accepted"
    assert application.counts() == (1, 1, 1, 0) and application.rows("SELECT id FROM orders") == [("1",)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_savepoint_that_is_rolled_back_takes_its_key_with_it(application: Application, level: IsolationLevel) -> None:
    with psycopg.connect(application.url) as connection:
        connection.isolation_level = level
        with connection.transaction() as outer:
            with pytest.raises(ZeroDivisionError), connection.transaction():
                assert accept(connection, "a").decision == "accepted"
                raise ZeroDivisionError
            with connection.transaction():
                assert accept(connection, "b").decision == "accepted"
                assert accept(connection, "b").decision == "in_progress"
            assert outer is not None
    assert application.rows("SELECT idempotency_key FROM idem.intents") == [("b",)]


@pytest.mark.parametrize("level", LEVELS)
def test_hazard_23_of_two_sessions_one_wins_and_nobody_waits(application: Application, level: IsolationLevel) -> None:
    with psycopg.connect(application.url) as first, psycopg.connect(application.url) as second:
        first.isolation_level = second.isolation_level = level
        second.execute("SET statement_timeout = '5s'")
        second.commit()
        assert accept(first).decision == "accepted"
        met = accept(second)
        assert (met.decision, met.intent_id) == ("in_progress", None)
        first.commit()
        second.rollback()
        assert accept(second).decision == "in_progress"
    assert application.counts() == (1, 1, 1, 0)


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_winner_after_the_snapshot_raises_40001(application: Application, level: IsolationLevel) -> None:
    with psycopg.connect(application.url) as late:
        late.isolation_level = level
        late.execute("SELECT count(*) FROM idem.operations")
        intent = application.accepted()
        with pytest.raises(psycopg.errors.SerializationFailure):
            accept(late)
        late.rollback()
        again = accept(late)
        assert (again.decision, again.intent_id) == ("in_progress", intent)


@pytest.fixture
def roles(superuser_url: str) -> Iterator[tuple[str, str]]:
    """A login role, and a group that it is a member of."""
    login, group = f"login_{uuid4().hex[:12]}", f"group_{uuid4().hex[:12]}"
    with psycopg.connect(superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {group}; CREATE ROLE {login} LOGIN IN ROLE {group}")
        yield login, group
        admin.execute(f"DROP ROLE {login}; DROP ROLE {group}")


MAY = """
INSERT INTO idem.producers (role, role_oid, tenant)
SELECT r.rolname, r.oid, %(tenant)s FROM pg_roles r WHERE r.rolname = %(role)s
"""
GRANTS = """
GRANT USAGE ON SCHEMA idem TO {0};
GRANT EXECUTE ON FUNCTION idem.accept(text, text, text, json, boolean, text) TO {0};
"""


def test_a_role_accepts_for_its_tenants_and_reads_no_table(application: Application, roles: tuple[str, str]) -> None:
    login, group = roles
    url = application.url.replace("postgres@", f"{login}@")
    with psycopg.connect(application.url, autocommit=True) as owner:
        with psycopg.connect(url) as stranger, pytest.raises(psycopg.errors.InsufficientPrivilege):
            accept(stranger)
        owner.execute(GRANTS.format(group))  # type: ignore[arg-type]
        try:
            _tries(application, url, login, group, owner)
        finally:
            owner.execute(f"DROP OWNED BY {login}, {group}")  # type: ignore[arg-type]


def _tries(application: Application, url: str, login: str, group: str, owner: psycopg.Connection[object]) -> None:
    with psycopg.connect(url) as stranger, pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        accept(stranger)
    assert f"role {login} may not accept for tenant 't'" in str(refused.value)
    assert f"idem db grant {login} --as sql --tenant t" in str(refused.value.diag.message_hint)
    assert "with a further --tenant for each tenant that the role has now" in str(refused.value.diag.message_hint)
    owner.execute(MAY, {"role": group, "tenant": "t"})
    with psycopg.connect(url) as member:
        assert accept(member).decision == "accepted"
    with psycopg.connect(url) as member:
        assert accept(member).decision == "in_progress", "committed, although the role may read nothing"
        with pytest.raises(psycopg.errors.InsufficientPrivilege), member.transaction():
            accept(member, tenant="u")
        for table in ("idempotency_keys", "outbox", "producers", "installation", "operations"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), member.transaction():
                member.execute(f"SELECT FROM idem.{table}")  # type: ignore[arg-type]
    owner.execute(MAY, {"role": login, "tenant": "*"})
    owner.execute("INSERT INTO idem.producers (role, role_oid, tenant) VALUES ('no such role', 1, '*')")
    with psycopg.connect(url) as member:
        assert accept(member, tenant="u").decision == "accepted"
    assert application.rows("SELECT DISTINCT database_role FROM idem.evidence") == [(login,)]


def test_the_owner_may_always_and_public_never(application: Application) -> None:
    assert application.rows("SELECT FROM idem.producers") == []
    application.accepted()
    accept = "'idem.accept(text, text, text, json, boolean, text)'::regprocedure"
    acl = f"SELECT proacl::text FROM pg_proc WHERE oid = {accept}"
    assert "{=X" not in application.rows(acl)[0][0] and ",=X" not in application.rows(acl)[0][0]


def test_a_caller_s_own_objects_are_not_found_by_the_function(application: Application, roles: tuple[str, str]) -> None:
    """SECURITY DEFINER: what stands in the caller's search_path must not run with the owner's rights."""
    login, group = roles
    with psycopg.connect(application.url, autocommit=True) as owner:
        owner.execute(GRANTS.format(group))  # type: ignore[arg-type]
        owner.execute(f"CREATE SCHEMA evil AUTHORIZATION {login}")  # type: ignore[arg-type]
        owner.execute(MAY, {"role": login, "tenant": "t"})
        try:
            with psycopg.connect(application.url.replace("postgres@", f"{login}@")) as member:
                member.execute("SET search_path = evil, pg_catalog")
                for name, result in (("pg_has_role", "boolean"), ("sha256", "bytea")):
                    arguments = "name, name, text" if name == "pg_has_role" else "bytea"
                    member.execute(
                        f"CREATE FUNCTION evil.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS "  # type: ignore[arg-type]
                        f"$$ BEGIN RAISE 'it ran as %', current_user; END $$"
                    )
                assert accept(member).decision == "accepted"
        finally:
            owner.execute("DROP SCHEMA evil CASCADE")
            owner.execute(f"DROP OWNED BY {login}, {group}")  # type: ignore[arg-type]


def test_hazard_42_it_notifies_only_when_it_is_asked(application: Application) -> None:
    with psycopg.connect(application.url, autocommit=True) as listener:
        listener.execute("LISTEN idem_outbox")
        application.accepted("a")
        assert list(listener.notifies(timeout=0.3)) == []
        application.accepted("b", notify=True)
        assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1
        application.once("b", notify=True)
        assert list(listener.notifies(timeout=0.3)) == []


def test_a_two_phase_commit_may_carry_it(application: Application) -> None:
    with psycopg.connect(application.url, autocommit=True) as connection:
        if connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            pytest.skip("the server keeps no prepared transactions")
        connection.execute("BEGIN")
        assert accept(connection).decision == "accepted"
        connection.execute("PREPARE TRANSACTION 'idem test'")
        connection.execute("COMMIT PREPARED 'idem test'")
    assert application.counts() == (1, 1, 1, 0)


async def test_left_out_members_may_differ(spine: Spine, application: Application) -> None:
    synced(spine.url, spine.know(fingerprint_without=("/sent_at", "/client/0/id")))
    intent = application.accepted(params={"amount": 1, "sent_at": "x", "client": [{"id": 1}]})
    again = application.once(params={"client": [{"id": 2}], "amount": 1})
    assert (again.decision, again.intent_id) == ("in_progress", intent)
    same = spine.accept("k1", params={"amount": 1, "sent_at": 3, "client": [{}]})
    assert getattr(same, "intent_id", None) == intent and not isinstance(same, Mismatch)

"""One provider key, one intent: no role can begin a call under the key of another one's call."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from schema import shapes
from schema.databases import Installed

Connection = psycopg.Connection[Any]

ACCEPT = """
SELECT d.decision FROM idem.accept('mine', 'pay', %(key)s, 'v1:1', '{"amount": 1}', NULL, 'p', 'a', 'https://p.test',
    %(provider_key)s, 'POST', '/', '{}', 'body', '72 h', '15 min', 0, false, NULL) AS d
"""
RESERVE = """
SELECT d.intent_id FROM idem.reserve('mine', 'pay', %(key)s, 'v1:1', '72 h', '15 min', false) AS d
"""
SUBMIT = """
SELECT idem.submit(%(intent)s, 'mine', 'pay', %(key)s, '{"amount": 1}', NULL, 'p', 'a', 'https://p.test',
    %(provider_key)s, 'POST', '/', '{}', 'body', '15 min', 0, false, NULL)
"""
BEGIN_INLINE = """
SELECT (b.decided).decision FROM idem.begin_inline('mine', 'pay', %(key)s, 'v1:1', '{"amount": 1}', NULL, 'p', 'a',
    'https://p.test', %(provider_key)s, 'body', '72 h', '15 min', false, NULL, gen_random_uuid(), 'test', '1 min') AS b
"""
TAKE_OVER = """
SELECT d.decision FROM idem.accept_under_key('mine', 'pay', %(key)s, 'v1:1', '{"amount": 1}', NULL, 'p', 'a',
    'https://p.test', %(provider_key)s, 'POST', '/', '{}', 'body', '72 h', '15 min', 0, false, NULL, true, false) AS d
"""
WRITTEN = """
SELECT count(*) FROM idem.intents UNION ALL SELECT count(*) FROM idem.idempotency_keys
 UNION ALL SELECT count(*) FROM idem.outbox UNION ALL SELECT count(*) FROM idem.requests
"""
WAYS = [("producer", "accept"), ("producer", "submit"), ("daemon", "accept"), ("daemon", "submit"),
        ("daemon", "begin_inline")]  # fmt: skip


def begin(connection: Connection, way: str, key: str, provider_key: Any) -> None:
    given = {"key": key, "provider_key": provider_key}
    if way == "submit":
        (intent,) = connection.execute(RESERVE, given).fetchone() or (None,)
        connection.execute(SUBMIT, {**given, "intent": intent})
    else:
        connection.execute(ACCEPT if way == "accept" else BEGIN_INLINE, given)


@pytest.fixture
def role(request: pytest.FixtureRequest, pristine: Installed) -> str:
    return str(getattr(pristine, request.param))


@pytest.fixture
def session(rolled_back: Connection, role: str) -> Iterator[Connection]:
    rolled_back.execute(f"SET LOCAL ROLE {role}")
    yield rolled_back


@pytest.mark.parametrize(("role", "way"), WAYS, indirect=["role"])
@pytest.mark.parametrize("whose", ["another tenant's", "another operation's", "another key's", "any"])
def test_no_call_begins_under_a_key_that_is_not_its_own(session: Connection, way: str, whose: str) -> None:
    other = {
        "another tenant's": shapes.derived(session, "yours", "pay", "k"),
        "another operation's": shapes.derived(session, "mine", "refund", "k"),
        "another key's": shapes.derived(session, "mine", "pay", "other"),
        "any": shapes.ROW,
    }[whose]
    refused = pytest.raises(psycopg.errors.CheckViolation, match="is not the provider key of key")
    with refused as caught, session.transaction():
        begin(session, way, "k", other)
    assert "idem import" in str(caught.value.diag.message_hint)
    session.execute("RESET ROLE")
    assert session.execute(WRITTEN).fetchall() == [(0,)] * 4


@pytest.mark.parametrize(("role", "way"), WAYS, indirect=["role"])
def test_a_call_begins_under_its_own_key(session: Connection, way: str) -> None:
    begin(session, way, "k", shapes.derived(session, "mine", "pay", "k"))
    session.execute("RESET ROLE")
    assert session.execute(WRITTEN).fetchall() == [(1,)] * 4


@pytest.mark.parametrize("role", ["producer"], indirect=True)
def test_a_producer_takes_over_no_call_of_another_system(session: Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(TAKE_OVER, {"key": "k", "provider_key": shapes.ROW})


@pytest.mark.parametrize("role", ["daemon"], indirect=True)
def test_an_import_takes_over_a_call_under_the_key_of_the_system_before(session: Connection) -> None:
    assert session.execute(TAKE_OVER, {"key": "k", "provider_key": shapes.ROW}).fetchone() == ("accepted",)

"""An answer that HTTP cannot carry is stored by nobody: not by SQL, not by a daemon, not as a proof that waits."""

import json
import os
import random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from schema import shapes
from schema.shapes import NOW

from idem import Answer
from idem.outbox.domain.operation import check_answer

Connection = psycopg.Connection[Any]
ROUNDS = int(os.environ.get("IDEM_ANSWER_ROUNDS", "300"))

UNSENDABLE: dict[str, tuple[int | None, Any, bytes | None]] = {
    "a line break": (402, {"X-A": "a\r\nSet-Cookie: x=y"}, b"{}"),
    "a line break at the end": (402, {"X-A": "a\n"}, b"{}"),
    "a number": (402, {"X-A": 5}, b"{}"),
    "not ASCII": (402, {"X-A": "€"}, b"{}"),
    "null": (402, {"content-type": None}, b"{}"),
    "a list": (402, {"X-A": ["a"]}, b"{}"),
    "a name with a blank": (402, {"bad name": "x"}, b"{}"),
    "a name with a line break": (402, {"x\n": "x"}, b"{}"),
    "an empty name": (402, {"": "x"}, b"{}"),
    "a name that is not ASCII": (402, {"é": "x"}, b"{}"),
    "a blank at the end": (402, {"X-A": "a "}, b"{}"),
    "a tab": (402, {"X-A": "a\tb"}, b"{}"),
    "DEL": (402, {"X-A": "\x7f"}, b"{}"),
    "too many headers": (402, {f"x-{number}": "v" * 100 for number in range(100)}, b"{}"),
    "headers that are a list": (402, [], b"{}"),
    "headers that are null": (402, None, b"{}"),
    "a body of 204": (204, {}, b"x"),
    "no body": (402, {}, None),
    "too large a body": (402, {}, b"x" * (8 * 2**20 + 1)),
    "status 500": (500, {}, b"{}"),
    "status 199": (199, {}, b"{}"),
    "no status": (None, {}, b"{}"),
}
SENDABLE: dict[str, tuple[int, Any, bytes]] = {
    "nothing": (204, {}, b""),
    "an empty value": (402, {"X-A": ""}, b"{}"),
    "blanks within": (402, {"X-A": "a b  c"}, b"{}"),
    "every sign of a name": (402, {"!#$%&'*+.^_`|~09AZaz-": "~!"}, b"\xff\x00"),
    "the message's own length": (402, {"content-length": "3"}, b"{}"),
}


def reserved(connection: Connection) -> None:
    connection.execute("SELECT idem.reserve('t', 'pay', 'k', 'v1:0', '1 day', '1 day', false)")


COMPLETE = """
SELECT idem.complete(k.intent_id, 't', 'pay', 'k', '{}', NULL, 'refused', %s::smallint, %s::jsonb, %s, '1 day')
  FROM idem.idempotency_keys k WHERE k.idempotency_key = 'k'
"""


def by_sql(connection: Connection, status: int | None, headers: Any, body: bytes | None) -> None:
    reserved(connection)
    connection.execute(COMPLETE, [status, None if headers is None else json.dumps(headers), body])


def by_settling(connection: Connection, status: int | None, headers: Any, body: bytes | None) -> None:
    shapes.plant(connection, "intents", "idempotency_keys")
    shapes.update(connection, "idempotency_keys", state="completed", completed_at=NOW, response_status=status,
                  response_headers=json.dumps(headers), response_body=body)  # fmt: skip


def by_proof(connection: Connection, status: int | None, headers: Any, body: bytes | None) -> None:
    shapes.plant(connection, "intents", "outbox")
    shapes.insert(connection, "proofs", outcome="succeeded", answer_status=status,
                  answer_headers=json.dumps(headers), answer_body=body)  # fmt: skip


WAYS = pytest.mark.parametrize("way", [by_sql, by_settling, by_proof])


@WAYS
@pytest.mark.parametrize("what", UNSENDABLE)
def test_what_http_cannot_carry_is_refused(rolled_back: Connection, way: Any, what: str) -> None:
    status, headers, body = UNSENDABLE[what]
    with pytest.raises(psycopg.errors.CheckViolation):
        way(rolled_back, status, headers, body)


STORED = """
SELECT response_status, response_body FROM idem.idempotency_keys WHERE response_status IS NOT NULL
UNION ALL SELECT answer_status, answer_body FROM idem.proofs
"""


@WAYS
@pytest.mark.parametrize("what", SENDABLE)
def test_what_http_carries_is_stored(rolled_back: Connection, way: Any, what: str) -> None:
    status, headers, body = SENDABLE[what]
    way(rolled_back, status, headers, body)
    assert rolled_back.execute(STORED).fetchall() == [(status, body)]


def test_the_error_says_which_header_and_what_to_store(rolled_back: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match='HTTP cannot carry its header "X-A"') as caught:
        by_sql(rolled_back, *UNSENDABLE["a line break"])
    assert "visible ASCII" in str(caught.value.diag.message_hint)


def test_sql_and_python_refuse_the_same(rolled_back: Connection) -> None:
    """Random headers of signs around the borders of what is allowed; `IDEM_ANSWER_ROUNDS` of them."""
    dice = random.Random(7)
    names, values = "aZ09-_!'\"(:;@[]{}|~ \t\n\x7f\x80é€", "aZ09 ~!\"'\t\r\n\x1f\x7f\x80é€\U0001f600"
    refused = 0
    for _ in range(ROUNDS):
        headers = {
            "".join(dice.choices(names[:8] if dice.random() < 0.6 else names, k=dice.randint(0, 3))): "".join(
                dice.choices(values[:7] if dice.random() < 0.6 else values, k=dice.randint(0, 4))
            )
            for _ in range(dice.randint(0, 2))
        }
        status, body = dice.choice([200, 204, 304, 402, 499, 500, 199]), dice.choice([b"", b"{}"])
        try:
            check_answer(Answer(status, body, headers))
            python = True
        except ValueError:
            python = False
        found = rolled_back.execute(
            sql.SQL("SELECT idem.answer_problem(%s, %s, %s) IS NULL"), [status, json.dumps(headers), body]
        ).fetchone()
        assert found == (python,), (status, headers, body)
        refused += not python
    assert 0 < refused < ROUNDS

"""Operations that call nobody: their rows and the stored answer in one transaction."""

from uuid import uuid4

import pytest
from adopt.proof_desk import DONE, Desk, opened_desk  # noqa: F401
from fix_sql import query
from sqlalchemy import text

from idem import Answer


@pytest.mark.parametrize("body", [b'{"kept": "as it is" }', None])
def test_a_local_operation_and_its_replay(desk: Desk, body: bytes | None) -> None:
    query(desk.url, "CREATE TABLE notes (text text)")
    stored = Answer(204 if body is None else 201, body, {"X-Note": "1"})
    told = []
    for _ in range(3):
        call = desk.local(body={"text": "a"})
        with desk.session() as db, db.begin():
            if call.reserve(db):
                db.execute(text("INSERT INTO notes VALUES ('a')"))
                call.complete(db, stored)
        told.append(call.answer(wait=5))
    assert {(each.status, each.body) for each in told} == {(stored.status, body or b"")}
    assert all(each.headers["X-Note"] == "1" for each in told)
    assert ["Idempotent-Replayed" in each.headers for each in told] == [False, True, True]
    assert (desk.count("notes"), desk.count("idem.outbox"), desk.count("idem.events")) == (1, 0, 1)


def test_an_answer_names_the_member_that_json_does_not_have() -> None:
    with pytest.raises(TypeError, match=r"^the member /orders/0/id is a UUID, .*: write it as text, e\.g\. str\("):
        Answer(201, {"orders": [{"id": uuid4()}]})


def test_an_exception_frees_the_key(desk: Desk) -> None:
    for attempt in range(3):
        call = desk.local()
        try:
            with desk.session() as db, db.begin():
                assert call.reserve(db)
                if attempt < 2:
                    raise RuntimeError("their own code failed")
                call.complete(db, DONE)
        except RuntimeError:
            assert desk.count("idem.idempotency_keys") == 0
    assert call.answer().status == 201


def test_what_was_refused_is_never_sent(desk: Desk) -> None:
    for _ in range(2):
        call = desk.begin()
        with desk.session() as db, db.begin():
            if call.reserve(db):
                call.refuse(db, Answer(422, {"error": "closed"}))
        assert (call.answer().status, call.answer().body) == (422, b'{"error":"closed"}')
    assert (desk.count("idem.outbox"), desk.count("idem.intents")) == (0, 1)

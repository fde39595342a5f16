"""The library in an application: `asked_by` of submit and accept, and the answer that the client gets."""

import json
from pathlib import Path

import pytest
from adopt.shop import define
from fix_sql import engine_of, query
from sqlalchemy.orm import Session

from idem import Answer
from idem.decisions import Accepted
from idem.errors import ConfigError

PARAMS = {"amount": 5, "currency": "eur"}
ROWS = """
SELECT n.asked_by, o.status, o.approval FROM idem.intents n JOIN idem.outbox o ON o.intent_id = n.id ORDER BY n.id
"""


def test_submit_says_who_asks(idem_toml: Path, db_url: str) -> None:
    _, charge = define(idem_toml, approve=lambda p: p.amount > 3, two_persons=True)
    call = charge.begin(key="k1", body=PARAMS)
    with Session(engine_of(db_url)) as db, db.begin():
        assert call.reserve(db)
        with pytest.raises(ConfigError, match="asked_by="):
            call.submit(db, PARAMS)
        call.submit(db, PARAMS, asked_by="grace@shop.example")
    told = call.answer()
    assert (told.status, json.loads(told.body)["status"]) == (202, "waiting_for_approval")
    again = charge.begin(key="k1", body=PARAMS)
    with Session(engine_of(db_url)) as db, db.begin():
        assert not again.reserve(db)
    assert (again.answer().status, again.answer().headers["Retry-After"]) == (202, "60")
    assert query(db_url, ROWS) == [("grace@shop.example", "approval", "wanted_of_another")]


def test_accept_says_who_asks(idem_toml: Path, db_url: str) -> None:
    _, charge = define(idem_toml, approve="always", rejected=Answer(403, {}))
    with Session(engine_of(db_url)) as db, db.begin():
        decided = charge.accept(db, PARAMS, key="k1", asked_by="grace")
        assert isinstance(decided, Accepted) and decided.status == "approval"
        charge.accept(db, PARAMS, key="k2")
    assert query(db_url, ROWS) == [("grace", "approval", "wanted"), (None, "approval", "wanted")]


def test_who_asks_for_what_needs_no_approval_is_not_kept(idem_toml: Path, db_url: str) -> None:
    _, charge = define(idem_toml, approve=lambda p: p.amount > 100)
    with Session(engine_of(db_url)) as db, db.begin():
        charge.accept(db, PARAMS, key="k1", asked_by="grace")
    assert query(db_url, ROWS) == [(None, "pending", None)]


def test_what_postgresql_cannot_hold_is_made_storable(idem_toml: Path, db_url: str) -> None:
    _, charge = define(idem_toml, approve="always")
    with Session(engine_of(db_url)) as db, db.begin():
        charge.accept(db, PARAMS, key="k1", asked_by="gr\0ace\ud800" + "x" * 5000)
    ((asked_by, status, _),) = query(db_url, ROWS)
    assert status == "approval" and "\0" not in asked_by and len(asked_by) <= 200

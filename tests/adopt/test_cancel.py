"""Cancelling from the application's own code, by both ways of calling it."""

from contextlib import closing
from pathlib import Path

import pytest
from adopt.shop import Charge, define
from fix_sql import engine_of
from sqlalchemy.orm import Session

from idem.decisions import Accepted, Replay
from idem.errors import OperatorRefused

WHY = {"by": "checkout", "reason": "the order was withdrawn"}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_was_not_sent_is_cancelled_once_and_its_client_gets_that(
    db_url: str, idem_toml: Path, monkeypatch: pytest.MonkeyPatch, *, asynchronous: bool
) -> None:
    monkeypatch.setenv("IDEM_DATABASE_URL", db_url)
    idem, charge = define(idem_toml)
    engine = engine_of(db_url)
    with closing(idem), Session(engine) as db:
        with db.begin():
            accepted = charge.accept(db, Charge(amount=1, currency="eur"), key="k1", tenant="acme")
        assert isinstance(accepted, Accepted)
        for refused in (False, True):
            try:
                if asynchronous:
                    await charge.cancel_async(accepted.intent_id, **WHY)
                else:
                    charge.cancel(accepted.intent_id, **WHY)
            except OperatorRefused:
                assert refused
            else:
                assert not refused
        with db.begin():
            again = charge.accept(db, Charge(amount=1, currency="eur"), key="k1", tenant="acme")
    engine.dispose()
    assert isinstance(again, Replay) and (again.answer.status, b"cancelled" in again.answer.body) == (409, True)

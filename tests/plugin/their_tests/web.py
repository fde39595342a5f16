from datetime import timedelta
from typing import Annotated

import pytest
import shop
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text

from idem import Call, response


@pytest.fixture
def client(engine):
    app = FastAPI()

    @app.post("/orders/{order}/payment")
    def pay(order: int, call: Annotated[Call, Depends(shop.charge.call)]):
        with engine.begin() as db:
            if call.reserve(db):
                cents = db.execute(text("SELECT cents FROM orders WHERE id = :i"), {"i": order}).scalar_one()
                call.submit(db, shop.Charge(order=order, cents=cents))
        return response(call.answer(wait=timedelta(seconds=20)))

    return TestClient(app)


def test_timeout_after_the_charge_charges_once(client, order, idem_bank, lab):
    def pay():
        return client.post(f"/orders/{order}/payment", headers={"Idempotency-Key": "k1", "Prefer": "wait=0"})

    idem_bank.act_then_drop()
    assert pay().status_code == 202

    lab.work()
    assert lab.state("k1") == "unknown"
    lab.settle()

    assert pay().status_code == 201
    assert len(idem_bank.charges) == 1


def test_an_endpoint_that_waits_is_answered_by_the_daemons(client, order, idem_bank, lab):
    with lab.running():
        answer = client.post(f"/orders/{order}/payment", headers={"Idempotency-Key": "k1"})
    assert (answer.status_code, answer.json()["state"]) == (201, "paid")

"""What every shop that pays `/orders/1/payment` is held to, whatever its framework."""

import httpx
from examples.town import Town


def charges_once_after_a_timeout(town: Town, shop: httpx.Client, table: str) -> None:
    town.bank.script(None, ["act_then_drop"])
    headers = {"Idempotency-Key": "p1"}
    first = shop.post("/orders/1/payment", headers=headers)
    assert first.status_code == 201, first.text + town.said()
    assert first.headers["content-type"] == "application/json"
    again = shop.post("/orders/1/payment", headers=headers)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert town.effects() == 1
    town.until(f"SELECT state = 'paid' FROM {table} WHERE id = 1")
    assert shop.post("/orders/1/payment", headers={"Idempotency-Key": "another"}).status_code == 409
    assert town.effects() == 1
    assert town.rows("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = 'another'") == [(0,)]


def answers_what_is_wrong(town: Town, shop: httpx.Client) -> None:
    missing = shop.post("/orders/1/payment")
    assert (missing.status_code, missing.json()["code"]) == (400, "key_missing")
    assert shop.post("/orders/999/payment", headers={"Idempotency-Key": "p2"}).status_code == 404
    assert town.rows("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = 'p2'") == [(0,)]

"""The shop in FastAPI, served by uvicorn, with the daemons and the bank's signed events."""

import sys
from collections.abc import Iterator

import httpx
import pytest
from examples.town import Town

FILES = ("fastapi_orders",)
EVENTS = True


@pytest.fixture(scope="module")
def shop(town: Town) -> Iterator[httpx.Client]:
    town.run(sys.executable, "app.py")
    town.group("payments:idem", handlers=1)
    town.serve(sys.executable, "-m", "uvicorn", "app:app", "--port", str(town.port), "--log-level", "warning")
    with httpx.Client(base_url=town.address, timeout=30) as client:
        yield client


def place(shop: httpx.Client, key: str) -> int:
    response = shop.post("/orders", json={"total": 4200}, headers={"Idempotency-Key": key})
    assert response.status_code == 201, response.text
    return int(response.json()["order"])


def pay(shop: httpx.Client, order: int, key: str, **headers: str) -> httpx.Response:
    return shop.post(f"/orders/{order}/payment", headers={"Idempotency-Key": key} | headers)


def test_a_timeout_after_the_charge_charges_once_and_the_answer_stays(town: Town, shop: httpx.Client) -> None:
    order, before = place(shop, "o1"), town.effects()
    town.bank.script(None, ["act_then_drop"])
    first = pay(shop, order, "p1")
    assert first.status_code == 201, first.text + town.said()
    again = pay(shop, order, "p1")
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert town.effects() == before + 1
    town.until("SELECT state = 'paid' FROM orders WHERE id = %s", order)
    assert shop.get(f"/orders/{order}").json()["payment"] == first.json()["payment"]
    # Another wish for the same order is refused by the shop itself, and that is stored like any answer.
    second = pay(shop, order, "p1b")
    assert (second.status_code, second.json()["state"]) == (409, "paid")
    assert (pay(shop, order, "p1b").content, town.effects()) == (second.content, before + 1)


def test_a_retried_order_is_one_order(shop: httpx.Client) -> None:
    assert place(shop, "o2") == place(shop, "o2")


def test_a_payment_that_needs_its_customer_is_settled_by_the_banks_event(town: Town, shop: httpx.Client) -> None:
    order, before = place(shop, "o3"), town.effects()
    town.bank.script(None, ["requires_action:120"])
    waits = pay(shop, order, "p3", Prefer="wait=1")
    assert waits.status_code == 202, waits.text
    assert waits.json()["interim"]["redirect"].startswith("https://acs.bank.example/")
    town.bank.shift_clock(121)  # the customer has done it
    town.until("SELECT state = 'paid' FROM orders WHERE id = %s", order)
    final = pay(shop, order, "p3")
    assert (final.status_code, final.json()["payment"]) == (201, waits.json()["interim"]["payment"])
    assert town.effects() == before + 1
    assert ("webhook",) in town.rows("SELECT source FROM idem.evidence WHERE kind = 'proof' OR source = 'webhook'")


def test_a_declined_card_is_an_answer_and_another_card_is_another_key(town: Town, shop: httpx.Client) -> None:
    order = place(shop, "o4")
    town.bank.script(None, ["decline"])
    refused = pay(shop, order, "p4")
    assert refused.status_code == 402, refused.text
    assert pay(shop, order, "p4").content == refused.content
    town.until("SELECT state = 'open' FROM orders WHERE id = %s", order)
    assert pay(shop, order, "p4-other-card").status_code == 201


def test_an_order_that_is_not_there_leaves_the_key_free(town: Town, shop: httpx.Client) -> None:
    assert pay(shop, 999_999, "p5").status_code == 404
    assert town.rows("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = 'p5'") == [(0,)]


def test_the_shops_own_audit_passes(town: Town) -> None:
    town.environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    assert "1 passed" in town.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_audit.py")

"""The shop in Flask, by its own development server."""

import sys
from collections.abc import Iterator

import httpx
import pytest
from examples.orders import answers_what_is_wrong, charges_once_after_a_timeout
from examples.town import IDEM, Town

FILES = ("flask_orders.py", "idem.toml")
EVENTS = False
FLASK = (sys.executable, "-m", "flask", "--app", "flask_orders")


@pytest.fixture(scope="module")
def shop(town: Town) -> Iterator[httpx.Client]:
    town.run(*FLASK, "tables")
    town.daemons("flask_orders:idem", handlers=1)
    town.serve(*FLASK, "run", "--port", str(town.port))
    with httpx.Client(base_url=town.address, timeout=30) as client:
        yield client


def test_a_timeout_after_the_charge_charges_once_and_the_answer_stays(town: Town, shop: httpx.Client) -> None:
    charges_once_after_a_timeout(town, shop, "flask_orders")
    reused = shop.post("/orders/1/payment", headers={"Idempotency-Key": "p1"}, json={"note": "another"})
    assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")


def test_a_database_that_cannot_answer_now_is_a_503(town: Town, shop: httpx.Client) -> None:
    """An operator's pause of accept, which the application hears as StoreUnavailable does."""
    town.run(*IDEM, "pause", "bank", "--what", "accept", "--reason", "test")
    town.do("INSERT INTO flask_orders (id, total) VALUES (2, 4200)")
    told = shop.post("/orders/2/payment", headers={"Idempotency-Key": "p3"})
    assert (told.status_code, told.json()["code"]) == (503, "paused")
    assert int(told.headers["retry-after"]) >= 1
    town.run(*IDEM, "resume", "bank", "--reason", "test")
    page = shop.get("/problems/paused")
    assert page.status_code == 200 and "<h1>" in page.text
    assert shop.get("/problems/nothing").status_code == 404


def test_what_is_wrong_is_an_answer(town: Town, shop: httpx.Client) -> None:
    answers_what_is_wrong(town, shop)

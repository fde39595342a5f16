"""The shop in Django, by runserver, with Django's own connection and migrations."""

import sys
from collections.abc import Iterator

import httpx
import pytest
from examples.town import Town

FILES = ("django_orders",)
EVENTS = False
MANAGE = (sys.executable, "manage.py")


@pytest.fixture(scope="module")
def shop(town: Town) -> Iterator[httpx.Client]:
    town.run(*MANAGE, "migrate")
    town.do("INSERT INTO shop_order (id, total) VALUES (1, 4200)")
    town.daemons("shop.payments:idem", handlers=1)
    town.serve(*MANAGE, "runserver", "--noreload", str(town.port))
    with httpx.Client(base_url=town.address, timeout=30) as client:
        yield client


def test_the_migration_is_what_the_models_say(town: Town) -> None:
    assert "No changes detected" in town.run(*MANAGE, "makemigrations", "--check", "--dry-run")


def test_a_timeout_after_the_charge_charges_once_and_the_answer_stays(town: Town, shop: httpx.Client) -> None:
    town.bank.script(None, ["act_then_drop"])
    headers = {"Idempotency-Key": "p1"}
    first = shop.post("/orders/1/payment", headers=headers)
    assert first.status_code == 201, first.text + town.said()
    again = shop.post("/orders/1/payment", headers=headers)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert town.effects() == 1
    town.until("SELECT state = 'paid' FROM shop_order WHERE id = 1")
    assert shop.post("/orders/1/payment", headers={"Idempotency-Key": "another"}).status_code == 409
    assert town.effects() == 1
    assert town.rows("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = 'another'") == [(0,)]


def test_what_is_wrong_is_an_answer(town: Town, shop: httpx.Client) -> None:
    missing = shop.post("/orders/1/payment")
    assert (missing.status_code, missing.json()["code"]) == (400, "key_missing")
    assert shop.post("/orders/999/payment", headers={"Idempotency-Key": "p2"}).status_code == 404
    assert town.rows("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = 'p2'") == [(0,)]

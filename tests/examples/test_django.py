"""The shop in Django, by runserver, with Django's own connection and migrations."""

import sys
from collections.abc import Iterator

import httpx
import pytest
from examples.orders import answers_what_is_wrong, charges_once_after_a_timeout
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
    charges_once_after_a_timeout(town, shop, "shop_order")


def test_what_is_wrong_is_an_answer(town: Town, shop: httpx.Client) -> None:
    answers_what_is_wrong(town, shop)

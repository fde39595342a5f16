"""A shop, empty at the beginning of each test; its provider is nowhere, because accept calls nobody."""

from collections.abc import Iterator

import pytest
from accept.shop import ORDERS, Shop, empty
from fix_accept import Acceptor
from fix_database import clone
from fix_spine import catalogue, operation
from fix_sql import query


@pytest.fixture
def acceptor() -> Acceptor:
    known = catalogue("http://127.0.0.1:9", **{"ship.keyed": operation("ship.keyed", "keyed")})
    return Acceptor(known.operations, known.providers)


@pytest.fixture(scope="session")
def shop_url(server: str, template: str) -> Iterator[str]:
    """One database for all tests of accept: what is in it is in the way of nobody but the next test."""
    with clone(server, template) as url:
        query(url, ORDERS)
        yield url


@pytest.fixture
def shop(shop_url: str, acceptor: Acceptor) -> Shop:
    empty(shop_url)
    return Shop(shop_url, acceptor)

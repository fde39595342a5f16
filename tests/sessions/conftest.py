"""A user's database whose sessions are set as somebody else chose, and a look at each commit from inside."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_sql import query
from psycopg import sql

Alter = Callable[..., None]

# Deferred and last by its name, so that it sees what the commit will be.
SEEN = Path(__file__).with_name("seen.sql").read_text()


@pytest.fixture
def shop_url(db_url: str) -> str:
    """A database with a table of the user's; `public.commits` has how each transaction was committed."""
    query(db_url, SEEN)
    return db_url


@pytest.fixture
def alter(shop_url: str) -> Iterator[Alter]:
    """ALTER DATABASE … SET: what every later session of anybody begins with. The URL's own options win."""
    with psycopg.connect(shop_url, autocommit=True) as own:
        (name,) = own.execute("SELECT current_database()").fetchone() or ("",)

        def setting(**settings: str) -> None:
            own.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(name)))
            for each, value in settings.items():
                own.execute(
                    sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                        sql.Identifier(name), sql.Identifier(each), sql.SQL(value)
                    )
                )

        yield setting
        setting()


def commits(url: str, where: str = "true") -> set[Any]:
    """The values of synchronous_commit at the commits that wrote to idem since the last look."""
    with psycopg.connect(url, autocommit=True) as own:
        found = {at for (at,) in own.execute(f"SELECT at FROM public.commits WHERE {where}")}
        own.execute("TRUNCATE public.commits")
    return found

"""A user's blocking code over SQLAlchemy: an operation with a provider, a local one, and sessions."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from adopt.shop import Charge, define
from fix_sql import engine_of, query
from sqlalchemy.orm import Session

from idem import Answer, Call

CHARGE = Charge(amount=100, currency="eur")
DONE = Answer(201, {"done": True})


@dataclass
class Desk:
    url: str
    idem: Any
    charge: Any
    note: Any
    """A local operation."""
    engine: Any

    def session(self) -> Session:
        return Session(self.engine)

    def begin(self, key: str = "k1", body: Any = None) -> Call:
        return self.charge.begin(key=key, body=body)  # type: ignore[no-any-return]

    def local(self, key: str = "k1", body: Any = None) -> Call:
        return self.note.begin(key=key, body=body)  # type: ignore[no-any-return]

    def count(self, table: str) -> int:
        return query(self.url, f"SELECT count(*) FROM {table}")[0][0]


@pytest.fixture(name="desk")
def opened_desk(db_url: str, idem_toml: Path) -> Iterator[Desk]:
    idem, charge = define(idem_toml)
    engine = engine_of(db_url)
    yield Desk(db_url, idem, charge, idem.operation("notes.create", key_ttl="72h"), engine)

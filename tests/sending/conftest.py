"""A post office: a spool directory, with a file for each mail, which a function sends to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from fix_accept import Acceptor
from fix_spine import Spine
from sending.box import Box, idem_of

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.pool import Database

Office = Callable[..., Spine]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "spool")


@pytest.fixture
def office(database: Database, db_url: str, tmp_path: Path) -> Office:
    """Every daemon by hand, over a provider that is a function."""

    def build(send: Any, *, lease: float = 30, **settings: Any) -> Spine:
        known = idem_of(tmp_path / "idem.toml", send, **settings).catalogue()
        acceptor = Acceptor(known.operations, known.providers)
        worker = WorkerSettings(lease=lease, margin=0.5, slots=2, poll=0.05)
        return Spine(database, cast(Any, None), known, acceptor, db_url, worker)

    return build

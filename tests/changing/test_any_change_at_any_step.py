"""Whatever an operator changes between any two steps of a row's life, P1 to P5 hold.

A seed makes a story (`changing.story`). `IDEM_TEST_CHANGES` says how many are told; a failure prints the story and the
seed that tells it again.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from changing import promises
from changing.story import Story
from fix_restore import MEMORY, opened
from fix_spine import Spine
from fix_sql import query
from schema.databases import as_role

from idem.migrations import grants
from idem.outbox.database.pool import Database
from idem.testing.bank import Bank, BankSettings
from idem.testing.bank import BankAccount as BankAccount

STORIES = int(os.environ.get("IDEM_TEST_CHANGES", "8"))
FIRST = int(os.environ.get("IDEM_TEST_CHANGES_FROM", "0"))


def bank(log: Path) -> Bank:
    accounts = (
        BankAccount("keyed", "keyed-token", retention=MEMORY),
        BankAccount("second", "second-token", retention=MEMORY),
        BankAccount("another", "another-token", retention=MEMORY),
        BankAccount("keyless", "keyless-token", replay="none"),
    )
    return Bank(BankSettings(log=log, durable=False, require_auth=True, accounts=accounts))


@pytest.fixture
async def banks(tmp_path: Path) -> AsyncIterator[tuple[Bank, Bank]]:
    async with bank(tmp_path / "one.jsonl") as one, bank(tmp_path / "two.jsonl") as two:
        yield one, two


@pytest.fixture
async def daemons(spine: Spine, server: str) -> AsyncIterator[Database]:
    """The database as the role of the daemons, with the rights that `idem db grant` gives and no others."""
    role = f"idem_daemon_{uuid4().hex[:12]}"
    query(server, f"CREATE ROLE {role} LOGIN")
    with psycopg.connect(spine.url) as owner:
        for statement in grants.statements(role, "daemon"):
            owner.execute(statement)  # type: ignore[call-overload]
    database = await opened(as_role(spine.url, role))
    yield database
    await database.close()
    query(spine.url, f"DROP OWNED BY {role}")
    query(server, f"DROP ROLE {role}")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + STORIES))
async def test_the_promises_hold(spine: Spine, daemons: Database, banks: tuple[Bank, Bank], seed: int) -> None:
    story = Story(spine, daemons, banks, seed)
    try:
        for _ in range(3):
            await story.accept()
        for _ in range(story.chance.randint(6, 20)):
            if story.chance.random() < 0.5:
                story.change()
            await story.step()
        await story.finish()
        await promises.ended(story)
    except BaseException as error:
        raise AssertionError(f"{error!r}\nseed {seed}: {' / '.join(story.log)}") from error

"""A database that can be restored: `backup` copies it, and `restore` puts the copy in its place.

The bank is not restored: it remembers its payments as long as it promises. Time passes for both (`pass_time`), and also
for the rows of the copy once it is restored. System identifier, timeline, log position and the database's own number
stay the same, as with a restored snapshot, so that no daemon that starts then can notice it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from fix_accept import Acceptor
from fix_database import create, opened
from fix_kept import KeptDatabase
from fix_spine import Spine, catalogue
from fix_sql import query

from idem.outbox.database.memory import Memory
from idem.outbox.recovery import release
from idem.outbox.recovery.guard import Durability, Guard
from idem.outbox.recovery.quarantine import Quarantined, lost
from idem.testing.bank import Bank, BankSettings
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.databases import HERE

MEMORY = 86400.0
"""Seconds for which the bank remembers a key; `fix_spine.KEYED` promises the same."""


FAR = 2**62
"""The log position that a daemon had seen before the restore."""


async def notices(
    spine: Spine, *, moved: int = 0, word: Any = None, durability: Durability = "single", **changed: object
) -> None:
    """Connect a daemon with this memory to a database in whose installation these columns have changed."""
    for column, value in changed.items():
        await spine.execute(f"UPDATE idem.installation SET {column} = %s", [value])
    guard = Guard(spine.catalogue, durability)
    guard._memory = Memory(moved, word)
    await spine.run(guard)


async def lossless(spine: Spine) -> release.Released:
    """Record an operator's statement that nothing was lost."""
    return await spine.run(release.lossless, spine.catalogue, by="ann", reason="a planned move")


@dataclass
class Restorable:
    """`spine` on a database that can be restored from the last `backup`."""

    spine: Spine
    server: str
    passed: float = 0.0
    at_backup: float = 0.0

    @property
    def name(self) -> str:
        return urlsplit(self.spine.url).path.lstrip("/")

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for every row and for the bank."""
        await self.spine.advance(seconds)
        self.spine.bank.shift_clock(seconds)
        self.passed += seconds

    async def backup(self) -> None:
        """Copy the database."""
        await self._copy(self.name, f"{self.name}_backup")
        self.at_backup = self.passed

    async def restore(self) -> None:
        """Put the copy in the place of the database: later commits are lost."""
        await self._copy(f"{self.name}_backup", self.name)
        await self.spine.all(f"{HERE} RETURNING singleton")
        await self.spine.advance(self.passed - self.at_backup)

    async def recover_lost(self) -> Quarantined:
        """Do what `idem recover --lost` does."""
        return await self.spine.run(lost, self.spine.catalogue, by="ann", reason="restored")

    async def sweep(self) -> None:
        await self.spine.sweep()

    async def _copy(self, source: str, target: str) -> None:
        await self.spine.database.close()
        with psycopg.connect(self.server, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
            admin.execute(f"ALTER DATABASE {source} ALLOW_CONNECTIONS false")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [source])
            create(self.server, target, f"TEMPLATE {source}")
            admin.execute(f"ALTER DATABASE {source} ALLOW_CONNECTIONS true")
        self.spine.database = await opened(self.spine.url, of=KeptDatabase)


@asynccontextmanager
async def restorable(server: str, url: str, folder: Path) -> AsyncIterator[Restorable]:
    """The spine on the database at `url`, over a bank that forgets keys after `MEMORY`."""
    settings = BankSettings(
        log=folder / "bank.jsonl",
        durable=False,
        require_auth=True,
        accounts=(
            BankAccount("keyed", "keyed-token", retention=MEMORY),
            BankAccount("keyless", "keyless-token", replay="none"),
        ),
    )
    async with Bank(settings) as bank:
        known = catalogue(bank.url)
        spine = Spine(await opened(url, of=KeptDatabase), bank, known, Acceptor(known.operations, known.providers), url)
        yield Restorable(spine, server)
        await spine.database.close()
        query(server, f"DROP DATABASE IF EXISTS {urlsplit(url).path.lstrip('/')}_backup WITH (FORCE)")

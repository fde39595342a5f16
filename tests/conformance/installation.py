"""One installation for the cases: a bank, a PostgreSQL that can be cut off, and `idem api run` as a process."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fix_line
import psycopg
from fix_database import ENVIRONMENT, on
from fix_sql import query
from psycopg.conninfo import conninfo_to_dict
from schema.databases import new_database

from idem.outbox.config import load
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.tenants import tokens
from idem.testing.bank import Bank, BankAccount, BankSettings
from idem.testing.conformance import NotPossible, Target
from idem.testing.databases import HERE
from idem.testing.embedded.binaries import find_binaries
from idem.testing.proxy import Proxy

PROFILES = {
    "default": "",
    "strict": "strict_keys = true\nmin_key_length = 16",
    "stripe": 'profile = "stripe"',
}
WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Installation:
    """Handles. `database` goes straight to PostgreSQL; the API and its daemons go through `proxy`."""

    def __init__(self, url: str, bank: Bank, proxy: Proxy, file: Path, target: Target) -> None:
        self.url = url
        self.bank = bank
        self.proxy = proxy
        self.database = database(url)
        self.target = target
        self.environment = os.environ | {
            "IDEM_CONFIG": str(file),
            "IDEM_DATABASE_URL": fix_line.through(url, proxy),
            "BANK_TOKEN": "main-token",
            "BANK_WEBHOOK_SECRET": WEBHOOK_SECRET,
        }
        found = load(file, self.environment)
        self.catalogue = Catalogue(ENVIRONMENT, found.providers, found.operations)
        self.settings = found.settings
        self.port = 0
        self.api: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """`idem api run`, on the port that it had before."""
        self.api = await self.idem("api", "run", "--port", str(self.port), "--log-level", "warning")
        assert self.api.stderr is not None
        said = b""
        while line := await asyncio.wait_for(self.api.stderr.readline(), 60):
            said += line
            if b"listening on http://" in line:
                self.port = int(line.decode().strip().rpartition(":")[2])
                self.target = self.target.at(f"http://127.0.0.1:{self.port}")
                self._log = asyncio.create_task(self.api.stderr.read())
                return
        raise AssertionError(f"the API did not start: {said.decode()}")

    async def stop(self) -> None:
        """SIGTERM; a process that does not end by itself is a fault."""
        if self.api is not None and self.api.returncode is None:
            self.api.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(self.api.wait(), 60) == 0, "the API ended with a fault"

    async def idem(self, *arguments: str) -> asyncio.subprocess.Process:
        """A command as a process of its own."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "idem.cli.main", *arguments)
        return await asyncio.create_subprocess_exec(
            *command, env=self.environment, stdout=subprocess.DEVNULL, stderr=pipe
        )

    async def token(self, tenant: str, *, revoked: bool = False) -> str:
        async with self.database.connection() as connection:
            number, token = await tokens.create(connection, tenant, "conformance")
            if revoked:
                await tokens.revoke(connection, number, by="ada", reason="lost")
        return token

    async def dump_and_restore(self) -> None:
        """`pg_dump`, DROP DATABASE, CREATE DATABASE, `psql`."""
        name, admin = conninfo_to_dict(self.url)["dbname"], on(self.url, "postgres")
        async with await psycopg.AsyncConnection.connect(admin, autocommit=True) as connection:
            try:
                dump, restore = programs(connection.info.server_version // 10000)
            except LookupError as error:
                raise NotPossible(str(error)) from None
            dumped = await _run([dump, "--format=plain", self.url])
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
            await connection.execute(f"CREATE DATABASE {name}")
        await _run([restore, "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", self.url], dumped)


def programs(major: int) -> tuple[str, str]:
    """`pg_dump` and `psql` of this version of PostgreSQL. Raises LookupError where they are not there."""
    folders = [str(find_binaries()[0]), f"/usr/lib/postgresql/{major}/bin", *os.environ.get("PATH", "").split(":")]
    for folder in folders:
        dump, restore = (shutil.which(name, path=folder) for name in ("pg_dump", "psql"))
        if dump is None or restore is None:
            continue
        if f" {major}." in subprocess.run([dump, "--version"], capture_output=True, text=True, check=False).stdout:
            return dump, restore
    raise LookupError(f"there is no pg_dump of PostgreSQL {major} here")


async def _run(command: list[str], given: bytes | None = None) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate(given)
    assert process.returncode == 0, err.decode()
    return out


def database(url: str) -> Database:
    return Database(url, name="conformance", size=4, timeouts=Timeouts(lock=10, connect=10))


@asynccontextmanager
async def installed(server: str, template: str, profile: str, folder: Path) -> AsyncIterator[Installation]:
    """All of it, on a database of its own."""
    accounts = (BankAccount("main", "main-token"),)
    bank = Bank(BankSettings(log=folder / "bank.jsonl", durable=False, require_auth=True, accounts=accounts))
    target = Target("http://127.0.0.1:1", profile=profile, webhook_secret=WEBHOOK_SECRET)
    file = folder / "idem.toml"
    with new_database(server, template=template) as url:
        query(url, HERE)
        async with bank, Proxy(fix_line.target(url)) as proxy:
            said = Path(__file__).with_name("idem.toml").read_text("utf-8")
            file.write_text(said.replace("ORIGIN", bank.url).replace("# PROFILE", PROFILES[profile]), "utf-8")
            place = Installation(url, bank, proxy, file, target)
            await place.database.open()
            try:
                await place.start()
                yield place
            finally:
                await place.stop()
                await place.database.close()

"""Whose account are these credentials? Asked at the start of a lane and compared with the stored answer (hazard 8).

With another account's credentials every look-up is a truthful "not found", and every send another effect. So a lane
serves nothing until it has asked once, nor while another account answers. A provider that cannot tell holds up no first
send. Who asks about calls that may have been made (`careful`) waits until the stored account is confirmed.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.calls.lane import Lane
from idem.outbox.calls.lookup_pages import task_cancelled
from idem.outbox.daemon.daemon import HEARTBEAT
from idem.outbox.daemon.retry import RetryLoop, wait
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.operator import pause
from idem.outbox.providers.sender_identity import SenderCredentials

AGAIN: Final = 60.0
"""Seconds until it is asked again, while the account is not known or another account answers."""
WATCH: Final = 1.0
"""Seconds between two checks of the file of a token."""


@dataclass(frozen=True, slots=True)
class AccountIdentity:
    """What is stored of an account. `first`: it was stored just now."""

    name: str
    origin: str
    first: bool = False


# The first daemon stores it; every other one gets what is stored.
SEE_ACCOUNT = """
INSERT INTO idem.account_identities AS a (provider, account, origin, identity, seen_identity, seen_by)
VALUES (%(provider)s, %(account)s, %(origin)s, %(found)s, %(found)s, %(holder)s)
    ON CONFLICT (provider, account) DO UPDATE
   SET seen_identity = excluded.seen_identity, seen_at = statement_timestamp(), seen_by = excluded.seen_by
RETURNING a.identity, a.origin, a.first_seen_at = statement_timestamp()
"""


async def see(connection: AsyncConnection[Any], name: LaneScope, found: str, holder: str) -> AccountIdentity:
    """Keep what was found; what is stored as the account of this lane."""
    where = {"provider": name.provider, "account": name.account, "origin": name.origin}
    row = await (await connection.execute(SEE_ACCOUNT, {**where, "found": found, "holder": holder})).fetchone()
    assert row is not None
    return AccountIdentity(*row)


KNOWN_ACCOUNT = """
SELECT a.identity, a.origin FROM idem.account_identities a
 WHERE a.provider = %(provider)s AND a.account = %(account)s
"""


async def known(connection: AsyncConnection[Any], name: LaneScope) -> AccountIdentity | None:
    """What is stored as the account of this lane."""
    where = {"provider": name.provider, "account": name.account}
    row = await (await connection.execute(KNOWN_ACCOUNT, where)).fetchone()
    return None if row is None else AccountIdentity(*row)


class AccountWatch:
    """One for each lane of a daemon, whose id is `holder`. It decides whether the lane is `served`."""

    def __init__(self, database: Database, name: LaneScope, lane: Lane, holder: str, *, careful: bool = False) -> None:
        self._database = database
        self._name = name
        self._lane = lane
        self._holder = holder
        self._careful = careful
        self._reported: str | None = None
        self._refused = False
        self.credentials = SenderCredentials(lane.account)
        self._confirmed: tuple[str, str] | None = None
        self._retry = RetryLoop(f"account check {name.provider}/{name.account}")
        self.again: float | None = 0.0
        """Seconds until it should be asked again; None: whose account it is, is known."""
        self.opened = asyncio.Event()
        """Set while the lane is served."""
        if lane.provider.account_check() is None:
            self.again = None
            self._serve()
        else:
            lane.served = False

    def identity(self, credentials: str | None) -> str | None:
        """Whose account these credentials are (`SenderCredentials.now`), where the provider has confirmed it."""
        if self._confirmed is None or self._confirmed[1] != credentials:
            return None
        return self._confirmed[0]

    @property
    def stale(self) -> bool:
        """Whether it was known of other credentials than today's: a token that was renewed may be another account's."""
        if self.again is not None or self._confirmed is None:
            return False
        return self.identity(self.credentials.now()) is None

    async def holds(self) -> bool:
        """Whether the lane is served; asks anew first, where a token has been renewed. Raises as `once`."""
        if self.stale:
            await self.once()
        return self._lane.served

    async def once(self, *, store: bool = True) -> None:
        """Ask, unless it is known. `store`: False only compares. Raises what an unreachable database raises."""
        if self.stale:
            # Nothing leaves under the new credentials before the provider has said whose they are, or could not.
            self._shut()
        elif self.again is None:
            return
        async with self._database.connection() as connection:
            paused = await pause.read(connection, self._name.provider, self._name.account)
        if paused.calls and paused.lookups:
            # Nothing goes there, and nothing may be asked; what follows the pause is asked first.
            self.again = HEARTBEAT
            return
        asked_as = self.credentials.now()
        found, seen = await self._lane.whose()
        if task_cancelled():
            raise asyncio.CancelledError
        self.again = AGAIN
        if found is None:
            why = seen.note or seen.error or "the answer does not name an account"
            await self._unchecked(why if seen.http_status is None else f"{why} (HTTP {seen.http_status})")
            return
        async with self._database.connection() as connection:
            stored = await (
                see(connection, self._name, found, self._holder) if store else known(connection, self._name)
            )
        if asked_as is None or asked_as != self.credentials.now():
            # Renewed while it was asked: the answer is about the old one.
            self.again = WATCH
            return
        if stored is None or stored.name == found:
            self.again, self._confirmed = None, (found, asked_as)
            daemon_events.account_known(
                self._name.provider, self._name.account, found, first=stored is not None and stored.first
            )
            self._serve()
            return
        self._refused = True
        self._shut()
        daemon_events.another_account(
            self._name.provider, self._name.account, self._name.origin, expected=stored.name,
            expected_origin=stored.origin, found=found,
        )  # fmt: skip

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until it is known or `stop` is set: at once, and then again and again; anew when a token is renewed."""
        while not stop.is_set():
            if self.again is None and not self.stale:
                if self._confirmed is None or not self.credentials.renewed:
                    return
                await wait(stop, WATCH)
            elif await self._retry.attempt(self._ask, stop) == "done" and self.again is not None:
                await wait(stop, self.again)

    async def _ask(self) -> None:
        try:
            await self.once()
            self._retry.over()
        except (*AWAY, *REFUSED):
            # No daemon works without the database: when it is back, this is asked before anything is called.
            raise
        except Exception as error:  # a check must never keep a daemon from its work
            telemetry.broken("account check", error, f"{self._name.provider}/{self._name.account}")
            self.again = AGAIN
            with suppress(*AWAY, *REFUSED):
                await self._unchecked(type(error).__name__)

    def _serve(self) -> None:
        self._lane.served = True
        self.opened.set()

    def _shut(self) -> None:
        self._lane.served = False
        self.opened.clear()

    async def _unchecked(self, why: str) -> None:
        """Nobody could tell. That is no reason to stand still, unless another account has answered before, or a look
        here would be believed: of an account that was known once, "not found" says nothing until it is known again."""
        waits = False
        if self._careful:
            async with self._database.connection() as connection:
                waits = await known(connection, self._name) is not None
        if self._reported != why:
            daemon_events.account_unchecked(self._name.provider, self._name.account, why, served=not waits)
            self._reported = why
        if waits:
            self._shut()
        elif not self._refused:
            self._serve()

"""Authenticates a caller by its bearer token, which is looked up and cached.

However many requests wait for an answer about their tokens, one statement at a time asks about all of them: a flood
of wrong tokens holds one connection, and neither fills memory nor pushes out what is known of good ones.
"""

import asyncio
import re
import time
from collections import OrderedDict
from itertools import islice
from typing import Final

from idem.outbox.database.pool import Database, time_limited
from idem.outbox.tenants import tokens
from idem.outbox.tenants.tokens import Caller as Caller

BEARER: Final = re.compile(rf"(?i:bearer) +({tokens.TOKEN.pattern})[ \t]*", re.ASCII)

REMEMBERED: Final = 10_000
"""Tokens that one process remembers, good and wrong ones each."""

MOST: Final = 500
"""Tokens that one statement asks about."""


class Callers:
    """Callers by their tokens; a look-up is cached for `cache` seconds, so a revoked token works that long."""

    def __init__(self, database: Database, cache: float) -> None:
        self._database = database
        self._cache = cache
        self._good: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._wrong: OrderedDict[bytes, float] = OrderedDict()
        self._asked: dict[bytes, asyncio.Future[Caller | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    def remembered(self, authorization: list[str]) -> Caller | None:
        """The caller of a request, if its token was found good not longer than `cache` seconds ago."""
        digest = _digest(authorization)
        return None if digest is None else self._remembered(digest, time.monotonic())

    async def caller(self, authorization: list[str]) -> Caller | None:
        """The caller of a request, by its `Authorization` headers; None: no valid caller.

        Raises what an unreachable database raises (`idem.outbox.database.pool.AWAY`), and only if it had to be asked.
        """
        digest = _digest(authorization)
        if digest is None:
            return None
        now = time.monotonic()
        if (good := self._remembered(digest, now)) is not None:
            return good
        if now < self._wrong.get(digest, now):
            return None
        answer = self._asked.get(digest)
        if answer is None:
            answer = self._asked[digest] = asyncio.get_running_loop().create_future()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        # A client that goes away takes the answer from nobody else.
        return await asyncio.shield(answer)

    def _remembered(self, digest: bytes, now: float) -> Caller | None:
        good = self._good.get(digest)
        if good is None or now >= good[0]:
            return None
        self._good.move_to_end(digest)
        return good[1]

    async def _ask(self) -> None:
        while self._asked:
            digests = list(islice(self._asked, MOST))
            # Counted from before the statement: what is revoked after it is believed for no longer than `cache`.
            until = time.monotonic() + self._cache
            try:
                owners = await time_limited(self._database.timeouts.silence(), self._look_up(digests))
            except Exception as error:  # whatever it is, those who wait are told, and nobody waits for ever
                for digest in digests:
                    answer = self._asked.pop(digest)
                    answer.set_exception(error)
                    answer.exception()  # read here, because everybody who waited for it may be gone
            else:
                for digest in digests:
                    caller = owners.get(digest)
                    self._remember(digest, caller, until)
                    self._asked.pop(digest).set_result(caller)

    async def _look_up(self, digests: list[bytes]) -> dict[bytes, Caller]:
        async with self._database.connection() as connection:
            return await tokens.look_up(connection, digests)

    def _remember(self, digest: bytes, caller: Caller | None, until: float) -> None:
        if caller is not None:
            self._good[digest] = (until, caller)
            self._good.move_to_end(digest)
            self._wrong.pop(digest, None)
        else:
            self._wrong[digest] = until
            self._wrong.move_to_end(digest)
            self._good.pop(digest, None)
        for known in (self._good, self._wrong):
            while len(known) > REMEMBERED:
                known.popitem(last=False)


def _digest(authorization: list[str]) -> bytes | None:
    found = BEARER.fullmatch(authorization[0]) if len(authorization) == 1 else None
    return None if found is None else tokens.digest(found[1])

"""Pauses of a provider or of one account: calls, look-ups, accept. They are in the database, so they survive restarts.

Every claim reads them once, before any row (`claim.CLAIM`, `due.CLAIM_DUE`); a trigger refuses new intents. Running
calls continue. An empty account means all accounts of the provider.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection

from idem.outbox.database.channel import CHANNEL
from idem.outbox.operator.dead_letters import check_named
from idem.outbox.values.errors import OperatorRefused

What: TypeAlias = Literal["calls", "lookups", "accept"]
"""`calls`: first sends, replays and cancels. `lookups`: look-ups. `accept`: new intents."""

EVERYTHING: tuple[What, ...] = ("calls", "lookups", "accept")
EVERY_ACCOUNT = ""


@dataclass(frozen=True, slots=True)
class Paused:
    """The pauses of one account, its own or of its whole provider."""

    calls: bool
    lookups: bool
    accept: bool


PAUSES = """
SELECT coalesce(bool_or(l.paused), false), coalesce(bool_or(l.lookups_paused), false),
       coalesce(bool_or(l.accept_paused), false)
  FROM idem.lanes l WHERE l.provider = %(provider)s AND l.account IN (%(account)s, '')
"""


async def read(connection: AsyncConnection[Any], provider: str, account: str) -> Paused:
    """The present pauses."""
    row = await (await connection.execute(PAUSES, {"provider": provider, "account": account})).fetchone()
    assert row is not None
    return Paused(*row)


ADD_LANE = "INSERT INTO idem.lanes (provider, account) VALUES (%(provider)s, %(account)s) ON CONFLICT DO NOTHING"
LOCK_LANES = """
SELECT l.account, l.paused, l.lookups_paused, l.accept_paused FROM idem.lanes l
 WHERE l.provider = %(provider)s ORDER BY l.account FOR UPDATE
"""
WRITE_LANE = """
UPDATE idem.lanes l
   SET paused = %(calls)s, lookups_paused = %(lookups)s, accept_paused = %(accept)s, changed_at = statement_timestamp(),
       paused_by = CASE WHEN %(calls)s OR %(lookups)s OR %(accept)s THEN coalesce(%(paused_by)s::text, l.paused_by) END,
       reason = CASE WHEN %(calls)s OR %(lookups)s OR %(accept)s THEN coalesce(%(paused_for)s::text, l.reason) END
 WHERE l.provider = %(provider)s AND l.account = %(account)s
"""
KEEP_CHANGE = """
INSERT INTO idem.lane_changes (provider, account, what, paused, changed_by, reason)
SELECT %(provider)s, %(account)s, w.what, %(paused)s, %(by)s, %(reason)s FROM unnest(%(what)s::text[]) AS w (what)
"""


async def pause(
    connection: AsyncConnection[Any], provider: str, account: str, what: Collection[What], *, by: str, reason: str
) -> list[What]:
    """Pause these for one account, or for all, in one transaction; returns what was not paused yet. Raises
    OperatorRefused.
    """
    check_named(by, reason)
    who: dict[str, Any] = {"provider": provider, "by": by, "reason": reason}
    async with connection.transaction():
        await connection.execute(ADD_LANE, {"provider": provider, "account": account})
        held = (await _lock(connection, provider))[account]
        fresh: list[What] = [each for each in EVERYTHING if each in what and each not in held]
        if fresh:
            paused = {"account": account, "paused_by": by, "paused_for": reason}
            await _write(connection, who | paused, held | set(fresh))
            await connection.execute(KEEP_CHANGE, who | {"account": account, "paused": True, "what": fresh})
    return fresh


# A row that another session locks keeps its time, and delays no other.
HASTEN_PAUSED = """
UPDATE idem.outbox SET available_at = statement_timestamp()
 WHERE id = ANY (ARRAY(
       SELECT o.id FROM idem.outbox o
        WHERE o.status IN ('unknown', 'awaiting') AND o.provider = %(provider)s
          AND (%(account)s = '' OR o.account = %(account)s)
          AND o.available_at > statement_timestamp() AND o.failures > 0
        ORDER BY o.id
          FOR NO KEY UPDATE SKIP LOCKED))
"""
WAKE = "SELECT pg_notify(%(channel)s, '')"


async def resume(
    connection: AsyncConnection[Any], provider: str, account: str, what: Collection[What], *, by: str, reason: str
) -> dict[str, list[What]]:
    """End a pause of one account, or of the provider and all its accounts; returns what was resumed, by account.

    One transaction. Workers wake at its commit, and look-ups that could not be made meanwhile are due at once. Raises
    OperatorRefused if only the whole provider is paused.
    """
    check_named(by, reason)
    who: dict[str, Any] = {"provider": provider, "by": by, "reason": reason}
    done: dict[str, list[What]] = {}
    async with connection.transaction():
        held = await _lock(connection, provider)
        for name in held if account == EVERY_ACCOUNT else {account} & held.keys():
            if ended := [each for each in EVERYTHING if each in what and each in held[name]]:
                left = {"account": name, "paused_by": None, "paused_for": None}
                await _write(connection, who | left, held[name] - set(ended))
                await connection.execute(KEEP_CHANGE, who | {"account": name, "paused": False, "what": ended})
                done[name] = ended
        still = held.get(EVERY_ACCOUNT, frozenset()) & set(what) if account != EVERY_ACCOUNT else frozenset()
        if still:
            raise OperatorRefused(
                f"nothing was changed: {named(still)} of {provider} {'are' if len(still) > 1 else 'is'} paused for "
                f"all accounts, so a single account cannot be resumed: run `idem resume {provider}`, then pause the "
                "others"
            )
        if done:
            await connection.execute(HASTEN_PAUSED, who | {"account": account})
            await connection.execute(WAKE, {"channel": CHANNEL})
    return done


def named(what: Collection[str]) -> str:
    """For people: `calls, look-ups and accept`."""
    words = [{"calls": "calls", "lookups": "look-ups", "accept": "accept"}[each] for each in EVERYTHING if each in what]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


async def _lock(connection: AsyncConnection[Any], provider: str) -> dict[str, frozenset[What]]:
    rows = await (await connection.execute(LOCK_LANES, {"provider": provider})).fetchall()
    return {account: frozenset(_marked(flags)) for account, *flags in rows}


def _marked(flags: Collection[bool]) -> list[What]:
    return [each for each, is_paused in zip(EVERYTHING, flags, strict=True) if is_paused]


async def _write(connection: AsyncConnection[Any], who: dict[str, Any], what: Collection[What]) -> None:
    await connection.execute(WRITE_LANE, who | {each: each in what for each in EVERYTHING})


LANES_OF = """
SELECT l.account, l.paused, l.lookups_paused, l.accept_paused, l.paused_by, l.reason, l.changed_at
  FROM idem.lanes l
 WHERE l.provider = %(provider)s AND (l.paused OR l.lookups_paused OR l.accept_paused) ORDER BY l.account
"""


async def lanes(connection: AsyncConnection[Any], provider: str) -> list[dict[str, Any]]:
    """The present pauses of a provider, by account; None means all accounts."""
    rows = await (await connection.execute(LANES_OF, {"provider": provider})).fetchall()
    return [
        {
            "account": account or None,
            "what": _marked(flags),
            "paused_by": by,
            "reason": reason,
            "changed_at": changed_at,
        }
        for account, *flags, by, reason, changed_at in rows
    ]


PROVIDERS = """
SELECT o.provider, o.account FROM idem.operations o WHERE o.provider <> ''
 UNION SELECT l.provider, l.account FROM idem.lanes l
"""


async def providers(connection: AsyncConnection[Any]) -> dict[str, set[str]]:
    """The providers that this database knows, with their accounts."""
    known: dict[str, set[str]] = {}
    for provider, account in await (await connection.execute(PROVIDERS)).fetchall():
        known.setdefault(provider, set()).update({account} - {EVERY_ACCOUNT})
    return known

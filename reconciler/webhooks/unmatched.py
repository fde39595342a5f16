"""Events that match no call: kept, tried again, and in the end a dead letter, or counted as foreign.

Other programs often use the same account: other deployments, earlier code, a dashboard. An event counts as ours by our
tag, by a key that looks like one of ours, or if only this deployment uses the account. Every other unmatched event is
foreign, and opens no dead letter (hazard 40).
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.domain.contract import Contract
from idem.outbox.domain.webhook import Event
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.providers import response
from idem.outbox.settle import record
from idem.outbox.values import json_pointer, threads
from idem.reconciler.webhooks.applying import EventFate
from idem.reconciler.webhooks.ingest import FIRST_TRY, write_fate
from idem.reconciler.webhooks.matching import provider_key
from idem.reconciler.webhooks.waiting_events import WaitingEvent

YOUNG: Final = 86400.0
DAILY: Final = 86400.0
"""Seconds for which an unmatched event is looked at by time: an accept that commits late, or a restored one. After
that it waits for its reference to be written, and is looked at once a day, because what wakes it passes by a row that
is locked at that moment."""

SLOWEST: Final = 3600.0
"""Seconds at most between two tries while it is young."""

MOST_POINTERS: Final = 60
DEEPEST: Final = 5


async def wait_on(
    connection: AsyncConnection[Any], waiting: WaitingEvent, event: Event | None, contract: Contract
) -> None:
    """Write that an event still matches nothing, and what follows from its age.

    None: the present contract reads no such event. It waits all the same, because another contract may read it again.
    """
    horizon = contract.event_rule.horizon
    late = waiting.age > (YOUNG if horizon is None else horizon)
    fate: EventFate = "foreign" if waiting.fate == "foreign" else "unmatched"
    async with after_commit.transaction(connection):
        if late and fate == "unmatched" and horizon is not None and is_ours(event or Event(), contract):
            await _bury(connection, waiting, event or Event())
        elif late and fate == "unmatched" and event is not None:
            fate = "foreign"
            telemetry.webhook_foreign(waiting.provider, waiting.account)
        again = _foreign_try(waiting) if fate == "foreign" else _next_try(waiting, horizon)
        await write_fate(connection, waiting.id, fate, None, again=again)


def is_ours(event: Event, contract: Contract) -> bool:
    """Whether an event that matches nothing should have matched a call, as far as idem can tell."""
    if event.ours is not None:
        return event.ours
    return contract.dedicated_account or any(is_one_of_ours(key) for key in event.keys)


def is_one_of_ours(text: str) -> bool:
    """Whether a key has the form of our provider keys: UUIDs of version 8, which no library makes by itself."""
    key = provider_key(text)
    return key is not None and key.version == 8


def _next_try(waiting: WaitingEvent, horizon: float | None) -> float:
    """Seconds until it is looked at again: a quarter of its age, so at each tick while it is young."""
    again = DAILY if waiting.age > YOUNG else min(max(FIRST_TRY, waiting.age / 4), SLOWEST)
    if horizon is not None and waiting.age < horizon:
        again = min(again, horizon - waiting.age + FIRST_TRY)
    return again


def _foreign_try(waiting: WaitingEvent) -> float | None:
    # There may be very many of them: a few tries, further and further apart, then only when the reference is written.
    return None if waiting.age > 2 * YOUNG else min(max(FIRST_TRY, waiting.age * 4), DAILY)


async def _bury(connection: AsyncConnection[Any], waiting: WaitingEvent, event: Event) -> None:
    named = next((key for key in event.keys if is_one_of_ours(key)), None)
    key = provider_key(named or event.key)
    details = {
        "provider": waiting.provider,
        "account": waiting.account,
        "event": waiting.event_id,
        "type": event.type,
        "reference": event.reference,
        "provider_key": None if key is None else str(key),
        "ours": "it carries this deployment's tag"
        if event.ours
        else "its key looks like a key of this deployment"
        if named
        else "the account belongs to this deployment",
        "members": await threads.read(waiting.body, partial(_pointers, waiting.body or b"")),
    }
    await record.bury_unmatched(connection, waiting.id, details)


def _pointers(body: bytes) -> list[str]:
    return list(islice(_members(response.read_event(body)), MOST_POINTERS))


def _members(value: Any, at: tuple[str, ...] = ()) -> Iterator[str]:
    # Where things stand, never what: a person sees whether our pointers look at the right places.
    children: Any = ()
    if len(at) < DEEPEST and isinstance(value, dict):
        children = value.items()
    elif len(at) < DEEPEST and isinstance(value, list):
        children = enumerate(value[:1])
    elif at:
        yield json_pointer.render(at)
    for name, child in children:
        yield from _members(child, (*at, str(name)))

"""A row that the reconciler has claimed, and what the provider can know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from idem.outbox.database.pool import fields_of
from idem.outbox.domain.contract import Contract, FrozenRequest
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outbox_row import OutboxRow, outbox_row
from idem.outbox.domain.provider import Question
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outbox.providers import request_parts
from idem.outbox.providers.key_locations import places


@dataclass(frozen=True, slots=True)
class LookupClaim:
    """A row that this process may ask about. What has no comment here is as in `Question`.

    `row.quiet_left`: seconds for which something that was sent may still act; None: not known.
    """

    row: OutboxRow
    replay: bool  # its frozen request may be sent again
    request: FrozenRequest | None  # None: it was never rendered (`idem.accept` in SQL, then Recovery), so no replay
    lease_ends: float  # on the boot clock
    send_by: float = -math.inf  # until when a replay may leave, on the boot clock: then the provider may have forgotten
    may_send: bool = True  # replays and cancels are not paused
    may_look_up: bool = True  # look-ups are not paused
    begun: bool = False  # the claim begins with the replay, so that attempt is counted already
    extra_lookup: bool = False  # it was ordered, and uses up none of the schedule
    sent_at: float | None = None
    earlier_keys: tuple[str, ...] = ()
    later_keys: tuple[str, ...] = ()  # provider keys under which forgotten commits may have sent it
    asked_at: float = math.inf
    traceparent: str | None = None
    carried: bool = True  # the request carries the key as the present contract says
    named: bool = True  # its path or body names the key
    sent_as: int | None = None  # the sender that sent it
    withheld: str | None = None  # why idem neither replays nor cancels it: nothing shows that the account is the same
    places: frozenset[str] | None = None  # where the request has the key; None: the sent request is not known here

    @property
    def lookups_then(self) -> int:
        """How many look-ups of the schedule are used up when this one has been made."""
        return self.row.lookups if self.extra_lookup else self.row.lookups + 1

    @property
    def question(self) -> Question:
        """What the provider is asked about this row with."""
        awaiting = self.row.status is OutboxStatus.AWAITING
        method, path = ("", "") if self.request is None else (self.request.method, self.request.path)
        return Question(
            self.row.provider_key, self.row.reference, awaiting, self.sent_at, method, path, self.earlier_keys,
            self.asked_at, self.carried, self.named, {} if self.request is None else self.request.headers,
        )  # fmt: skip

    def as_attempt(self, attempt: int | None) -> LookupClaim:
        """The same under the number of an attempt that was begun within it; None: none was."""
        return self if attempt is None else replace(self, row=replace(self.row, attempt=attempt))


def lookup_claim(
    record: Any, lane: LaneScope, contract: Contract, *, token: UUID, now: float, lease: float, replay_first: bool
) -> LookupClaim:
    """The claim in a record of `due.CLAIM_DUE`, under the contract of now."""
    r = record
    request = None if r.method is None else FrozenRequest(r.method, r.path, r.headers, bytes(r.body))
    carried = named = True
    where: frozenset[str] | None = None
    if r.imported_as is not None:
        carried, named = r.imported_as == "key", False
    elif request is not None and not r.inline:
        carried = request_parts.carried(request, contract.key, r.provider_key)
        named = request_parts.named(request, contract.key, r.provider_key)
        where = places(request, r.provider_key)
    # What was never rendered here is asked about as well; `verdict` believes no absence of it.
    replay = r.replay and carried
    state = KeyState.UNKNOWN if r.status == OutboxStatus.UNKNOWN else KeyState.IN_PROGRESS
    made = {
        "row": outbox_row(r, token=token, state=state, provider=lane.provider, account=lane.account),
        "replay": replay,
        "request": request,
        "carried": carried,
        "named": named,
        "places": where,
        "lease_ends": now + lease,
        "send_by": -math.inf if r.memory_left is None else now + r.memory_left,
        "begun": replay and replay_first and r.as_before,
        "earlier_keys": tuple(r.earlier_keys),
        "later_keys": tuple(r.later_keys),
    }
    return LookupClaim(**fields_of(r, LookupClaim) | made)

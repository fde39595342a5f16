"""A row that the reconciler has taken to ask about, and what of it the provider can know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from idem.outbox.domain.contract import Contract, FrozenRequest
from idem.outbox.domain.provider import Question
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.providers import request_parts
from idem.outbox.providers.key_locations import places


@dataclass(frozen=True, slots=True)
class Taken:
    """A row that this process may ask about.

    `replay`: its frozen request may be sent again; `begun`: that attempt is counted already, because the take begins
    with it. `may_send` and `may_look`: neither replays and cancels, nor look-ups, are paused.
    `request` is None for what was never rendered, which no replay can be made of (`idem.accept` in SQL, then Recovery).
    `ordered`: the look comes before the one that the schedule has next, and uses up none of it.
    `send_by`: until when a replay may leave, on the boot clock; later the provider may have forgotten the first send.
    `carried`: the request carries the key as the contract of now says; `named`: it names it in its path or body.
    `quiet_left`: seconds for which something sent may still act, None where that is not known. `later_keys`: provider
    keys under which commits that the database has forgotten may have sent it. `sent_as`: as whom it was sent;
    `withheld`: why it is neither replayed nor cancelled, where nothing could show that the same account answers.
    `places`: where the request has the key; None where what was sent is not known here. The rest is as in `Row`
    (`idem.outbox.domain.transition`) and in `Question`.
    """

    id: UUID
    intent_id: UUID
    operation: str
    token: UUID
    attempt: int
    status: OutboxStatus
    provider_key: str
    reference: str | None
    replay: bool
    request: FrozenRequest | None
    lease_ends: float
    send_by: float = -math.inf
    may_send: bool = True
    may_look: bool = True
    begun: bool = False
    inline: bool = False
    lookups: int = 0
    ordered: bool = False
    absences: int = 0
    quiet_left: float | None = None
    key_burned: bool = False
    cancel_sent: bool = False
    server_error: bool = False
    contradicted: bool = False
    sent_at: float | None = None
    earlier_keys: tuple[str, ...] = ()
    later_keys: tuple[str, ...] = ()
    asked_at: float = math.inf
    traceparent: str | None = None
    carried: bool = True
    named: bool = True
    sent_as: int | None = None
    withheld: str | None = None
    places: frozenset[str] | None = None

    @property
    def lookups_then(self) -> int:
        """How many look-ups of the schedule are used up when this one has been made."""
        return self.lookups if self.ordered else self.lookups + 1

    @property
    def question(self) -> Question:
        """What the provider is asked about this row with."""
        awaiting = self.status is OutboxStatus.AWAITING
        method, path = ("", "") if self.request is None else (self.request.method, self.request.path)
        return Question(
            self.provider_key, self.reference, awaiting, self.sent_at, method, path, self.earlier_keys, self.asked_at,
            self.carried, self.named, {} if self.request is None else self.request.headers,
        )  # fmt: skip


def read(r: Any, contract: Contract, *, token: UUID, now: float, lease: float, replay_first: bool) -> Taken:
    """A record of `due.TAKE`, under the contract of now."""
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
    return Taken(
        id=r.id,
        intent_id=r.intent_id,
        operation=r.operation,
        token=token,
        attempt=r.attempt,
        status=OutboxStatus(r.status),
        provider_key=r.provider_key,
        reference=r.reference,
        replay=replay,
        request=request,
        carried=carried,
        named=named,
        lease_ends=now + lease,
        send_by=-math.inf if r.memory_left is None else now + r.memory_left,
        may_send=r.may_send,
        may_look=r.may_look,
        begun=replay and replay_first and r.as_before,
        sent_as=r.sent_as,
        places=where,
        inline=r.inline,
        traceparent=r.traceparent,
        lookups=r.lookups,
        ordered=r.ordered,
        absences=r.absences,
        quiet_left=r.quiet_left,
        key_burned=r.key_burned,
        cancel_sent=r.cancel_sent,
        server_error=r.server_error,
        contradicted=r.contradicted,
        sent_at=r.sent_at,
        earlier_keys=tuple(r.earlier_keys),
        later_keys=tuple(r.later_keys),
        asked_at=r.asked_at,
    )

"""The control question: before "absent" is believed, the same credentials must find something that is known to exist.

Swapped credentials, a test account or another region answer "not found" for everything, consistently (hazard 8). Where
credentials or look-ups are not as they were when the row was sent, it must be a payment that was sent as the row was;
a replay and a cancel ask for the same, where the credentials are others (docs/decisions/0040).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from idem.outbox import known
from idem.outbox.database import Database
from idem.outbox.lane import Lane
from idem.outbox.lane_names import LaneName
from idem.outbox.outcomes import Absent, CouldNotAsk, Look, Seen
from idem.outbox.provider import Question
from idem.outbox.sent_as import CREDENTIALS, Sender, who
from idem.reconciler.taken import Taken

GOOD_FOR = 60.0
"""Seconds for which an answered control question speaks for what it was asked for in this process."""
TRIES: Final = 3
"""Payments that are asked for, one after the other, until one is found."""

WHAT_TO_DO: Final = (
    "put the old ones back until what was sent under them is settled, or settle it with `idem dlq resolve`; with "
    "account_check a provider confirms new credentials of the same account"
)

Of: TypeAlias = tuple[int | None, int | None, str, bool]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why something is not believed or not sent. `counts`: it was answered, and the next answer will be the same."""

    note: str
    counts: bool = False
    http_status: int | None = None
    retry_after: float | None = None


class ControlQuestion:
    """One a lane. `confirm` says whether an `Absent` can be believed, `vouch` whether a call may be sent again."""

    def __init__(self, database: Database, name: LaneName, lane: Lane, sender: Sender) -> None:
        self._database = database
        self._name = name
        self._lane = lane
        self._sender = sender
        self._good_until: dict[Of, float] = {}
        self._one = asyncio.Lock()

    async def confirm(self, look: Look, taken: Taken, *, asked_as: int | None, lease_ends: float) -> Doubt | None:
        """None: it can be believed, or is no `Absent`. `asked_as`: the sender (`Sender.now`) before it was asked."""
        if not isinstance(look, Absent):
            return None
        if self._sender.now() != asked_as:
            return Doubt("not believed: the credentials became others while it was asked")
        changed = self._sender.changed(taken.sent_as)
        async with self._one:
            if self._is_good(of := (asked_as, taken.sent_as if changed else None, taken.operation, True)):
                return None
            doubt = await (self._alike(taken, changed, lease_ends) if changed else self._any(lease_ends))
            if doubt is None:
                self._believe(of)
            return doubt

    async def vouch(self, taken: Taken, *, lease_ends: float) -> Doubt | None:
        """None: the call may be sent again or cancelled, because the credentials reach whoever has got it first."""
        if CREDENTIALS not in self._sender.changed(taken.sent_as):
            return None
        async with self._one:
            if self._is_good(of := (self._sender.now(), taken.sent_as, taken.operation, False)):
                return None
            doubt = await self._alike(taken, (CREDENTIALS,), lease_ends)
            if doubt is None:
                self._believe(of)
            return doubt

    def judged(self, taken: Taken) -> Taken:
        """The row as it may be acted upon: what others have sent, and no question could confirm, is left alone."""
        changed = self._sender.changed(taken.sent_as)
        rule = self._lane.provider.contract.lookup
        if CREDENTIALS not in changed or rule.possible or rule.by_id:
            return taken
        return replace(taken, replay=False, begun=False, withheld=self._said(changed))

    async def _any(self, lease_ends: float) -> Doubt | None:
        """Nothing has changed: the newest of what is known to exist, however it is asked for."""
        async with self._database.connection() as connection:
            horizon = self._lane.provider.contract.lookup.horizon
            question = await known.newest(connection, self._name.provider, self._name.account, horizon)
        if question is None or not self._lane.provider.questions(question):
            # Without look-ups what was absent is the answer to a cancel.
            return None
        return await self._found([question], "not believed: the same credentials do not find a settled payment either",
                                 lease_ends)  # fmt: skip

    async def _alike(self, taken: Taken, changed: Sequence[str], lease_ends: float) -> Doubt | None:
        """Something has changed: a payment that was sent as the row was must be found.

        With other credentials and the old rules any of them shows whose account it is. Rules may fit some calls only:
        there it is an older one of the operation, asked for as the row is.
        """
        assert taken.sent_as is not None
        rules = tuple(changed) != (CREDENTIALS,)
        async with self._database.connection() as connection:
            found = await known.alike(
                connection, self._name.provider, self._name.account, self._lane.provider.contract.lookup.horizon,
                sender=who(taken.sent_as), intent=taken.intent_id, operation=taken.operation if rules else None,
                later=not rules, limit=TRIES,
            )  # fmt: skip
        asked = [replace(each, reference=None) if rules and taken.reference is None else each for _, each in found]
        questions = [question for question in asked if self._lane.provider.questions(question)]
        why = self._said(changed)
        if not questions:
            return Doubt(f"{why}; no settled payment that was sent like it can show the same account", True)
        return await self._found(questions, f"{why}; a settled payment that was sent like it is not found", lease_ends)

    async def _found(self, questions: Sequence[Question], why: str, lease_ends: float) -> Doubt | None:
        doubt = None
        for question in questions:
            answer, seen = await self._lane.ask(question, lease_ends=lease_ends)
            if isinstance(answer, CouldNotAsk):
                note = f"not believed: the control question failed ({seen.note or seen.error or seen.http_status})"
                return Doubt(note, False, seen.http_status, answer.retry_after)
            if not isinstance(answer, Absent):
                return None
            doubt = Doubt(f"{why} (another account?)", True, seen.http_status)
        return doubt

    def _said(self, changed: Sequence[str]) -> str:
        return f"not trusted: since it was sent, {' and '.join(changed)} have changed: {WHAT_TO_DO}"

    def _is_good(self, of: Of) -> bool:
        return asyncio.get_running_loop().time() < self._good_until.get(of, 0.0)

    def _believe(self, of: Of) -> None:
        now = asyncio.get_running_loop().time()
        self._good_until = {key: until for key, until in self._good_until.items() if until > now}
        self._good_until[of] = now + GOOD_FOR


def told(doubt: Doubt, seen: Seen) -> tuple[Look, Seen]:
    """What a look comes to that is not believed."""
    status = seen.http_status if doubt.http_status is None else doubt.http_status
    return CouldNotAsk(doubt.retry_after), Seen(status, note=doubt.note, started=True)

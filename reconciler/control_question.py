"""The control question: before "absent" is believed, the same credentials must find something that is known to exist.

Swapped credentials, a test account or another region answer "not found" for everything, consistently (hazard 8). Where
there is an older payment that was sent as the row was, with the key in the same places, it must be that one, asked for
as the row is; where credentials, look-ups or places have changed since then, nothing else will do. A replay and a
cancel ask for the same account, where the credentials are others (docs/decisions/0040).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from idem.outbox.calls import known_object
from idem.outbox.calls.lane import Lane
from idem.outbox.database.pool import Database
from idem.outbox.domain.contract import FrozenRequest, LookupRule
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, LookupOutcome, Seen
from idem.outbox.domain.provider import Question
from idem.outbox.providers.key_locations import of_path, places
from idem.outbox.worker.sender import CANCEL, CREDENTIALS, LOOKUPS, Sender, who
from idem.reconciler.lookup_claim import LookupClaim

GOOD_FOR = 60.0
"""Seconds for which an answered control question speaks for what it was asked for in this process."""
TRIES: Final = 3
"""Payments that are asked for, one after the other, until one is found."""
FORMS: Final = 50
"""Older payments whose requests are compared with the row's."""
PLACES: Final = "the path of the operation, or the places of the request in which it names the key,"

WHAT_TO_DO: Final = (
    "restore the old ones until everything that was sent under them is settled, or settle it with `idem dlq resolve`; "
    "with account_check a provider confirms new credentials of the same account"
)

Form: TypeAlias = frozenset[str]
Of: TypeAlias = tuple[object, ...]
"""What a control question speaks for: who asked, as whom the row was sent if that differs, and how it is asked for."""

UNFOUND: Final = (
    "the look-up is not trusted, although nothing has changed: if the look-up is wrong, correct it; otherwise settle "
    "this with `idem dlq resolve`"
)
OTHERS_NOW: Final = "not trusted: the credentials changed, or could not be read, during the look-up"


@dataclass(frozen=True, slots=True)
class Disbelief:
    """Why something is not believed or not sent. `counts`: it was answered, and the next answer will be the same."""

    note: str
    counts: bool = False
    http_status: int | None = None
    retry_after: float | None = None


@dataclass(eq=False, repr=False)
class ControlQuestion:
    """One a lane. `confirm` says whether an `Absent` can be believed, `vouch` whether a call may be sent again."""

    database: Database
    name: LaneScope
    lane: Lane
    sender: Sender

    def __post_init__(self) -> None:
        self._good_until: dict[Of, float] = {}
        self._one = asyncio.Lock()

    async def confirm(
        self, lookup: LookupOutcome, claim: LookupClaim, *, asked_as: int | None, lease_ends: float, looked: bool = True
    ) -> Disbelief | None:
        """None: the look can be believed, or it is not `Absent`. `asked_as`: the sender (`Sender.now`) before the
        question.

        `looked` False: it is the answer to a cancel, so the rules of the look-ups do not matter.
        """
        if not isinstance(lookup, Absent):
            return None
        changed = tuple(each for each in self.sender.changed(claim.sent_as) if looked or each == CREDENTIALS)
        form = self._form(claim.places) if looked else None
        sent_as, by_reference = claim.sent_as if changed else None, claim.row.reference is not None
        of = (asked_as, sent_as, claim.row.call, looked, form, by_reference)
        return await self._once(of, asked_as, lambda: self._doubt(claim, changed, form, lease_ends))

    async def vouch(self, claim: LookupClaim, *, lease_ends: float) -> Disbelief | None:
        """None: the call may be sent again or cancelled: the credentials reach the account that got it first."""
        now = self.sender.now()
        if CREDENTIALS not in self.sender.changed(claim.sent_as):
            return None
        return await self._once((now, claim.sent_as), now, lambda: self._same_account(claim, lease_ends))

    def elsewhere(self, claim: LookupClaim) -> Disbelief | None:
        """None: a cancel goes where the call went, as far as the rule of the cancel says. No question could show it."""
        return Disbelief(self._said([CANCEL]), True) if self.sender.cancels_elsewhere(claim.sent_as) else None

    def judged(self, claim: LookupClaim) -> LookupClaim:
        """The row as it may be acted upon: what others have sent, and no question could confirm, is left alone."""
        changed = self.sender.changed(claim.sent_as)
        if CREDENTIALS not in changed or self._rule.possible or self._rule.by_id:
            return claim
        return replace(claim, replay=False, begun=False, withheld=self._said(changed))

    async def _once(
        self, of: Of, asked_as: int | None, ask: Callable[[], Awaitable[Disbelief | None]]
    ) -> Disbelief | None:
        """What `ask` comes to, unless it was asked for the same a moment ago. An answer that other credentials than
        `asked_as` may have got proves nothing."""
        async with self._one:
            if asked_as is None or self.sender.now() != asked_as:
                return Disbelief(OTHERS_NOW)
            if self._is_good(of):
                return None
            doubt = await ask()
            if doubt is None and self.sender.now() != asked_as:
                return Disbelief(OTHERS_NOW)
            if doubt is None:
                self._believe(of)
            return doubt

    async def _doubt(
        self, claim: LookupClaim, changed: Sequence[str], form: Form | None, lease_ends: float
    ) -> Disbelief | None:
        if CREDENTIALS in changed and (doubt := await self._same_account(claim, lease_ends)) is not None:
            return doubt
        if claim.sent_as is not None and (form is not None or LOOKUPS in changed):
            same, others = await self._older(claim, who(claim.sent_as), form)
            if same:
                why = self._said(changed) if changed else UNFOUND
                return await self._found(
                    same, f"{why}; an older payment that was sent like it is not found", lease_ends
                )
            if LOOKUPS in changed:
                return Disbelief(f"{self._said(changed)}; no older payment that was sent like it can show it", True)
            if form is not None and (others or await self._is_sent_otherwise(claim, form)):
                return Disbelief(f"{self._said([PLACES])}; no older payment that was sent like it can show it", True)
        return None if changed else await self._any(lease_ends)

    async def _any(self, lease_ends: float) -> Disbelief | None:
        """Nothing has changed: the newest of what is known to exist, however it is asked for."""
        async with self.database.connection() as connection:
            question = await known_object.newest(connection, self.name.provider, self.name.account, self._rule.horizon)
        if question is None or not self.lane.provider.questions(question):
            # Without look-ups what was absent is the answer to a cancel.
            return None
        why = "not trusted: the same credentials do not find a settled payment either"
        return await self._found([question], why, lease_ends)

    async def _same_account(self, claim: LookupClaim, lease_ends: float) -> Disbelief | None:
        """The credentials have changed: any payment that was sent under those of the row shows whose account it is."""
        assert claim.sent_as is not None
        found = await self._alike(claim, who(claim.sent_as), operation=None, later=True, limit=TRIES)
        questions = [question for _, question in found if self.lane.provider.questions(question)]
        why = self._said([CREDENTIALS])
        if not questions:
            return Disbelief(
                f"{why}; no settled payment that was sent under the old ones can show the same account", True
            )
        return await self._found(questions, f"{why}; a settled payment of the old ones is not found", lease_ends)

    async def _older(self, claim: LookupClaim, sender: int, form: Form | None) -> tuple[list[Question], bool]:
        """Questions about older payments of the operation that have the key where the row has it, as the row is asked
        about; and whether there are others. Where no `form` is known, any of them counts."""
        forgotten = self.lane.provider.contract.key.retention
        kept = math.inf if forgotten <= 0 or self._rule.by_reference or self._rule.by_events else forgotten
        found = await self._alike(claim, sender, operation=claim.row.operation, later=False, limit=FORMS)
        alike = [q for sent, q in found if form is None or self._form(places(sent, q.provider_key)) == form]

        def kept_still(question: Question) -> bool:
            return question.asked_at - (question.sent_at or 0.0) < kept

        recent = [q for q in alike if kept_still(q)]
        asked = [q if claim.row.reference is not None else replace(q, reference=None) for q in recent]
        others = len(recent) < sum(kept_still(q) for _, q in found) or (bool(found) and not alike)
        return [q for q in asked if self.lane.provider.questions(q)][:TRIES], others

    async def _alike(self, claim: LookupClaim, sender: int, **which: Any) -> list[tuple[FrozenRequest, Question]]:
        async with self.database.connection() as connection:
            return await known_object.alike(
                connection, self.name.provider, self.name.account, self._rule.horizon, sender=sender,
                intent=claim.row.intent_id, row=claim.row.id, step=claim.row.step_name, **which,
            )  # fmt: skip

    async def _is_sent_otherwise(self, claim: LookupClaim, form: Form) -> bool:
        """Whether the operation has its key in other places by now."""
        async with self.database.connection() as connection:
            last = await known_object.last_request(
                connection, self.name.provider, self.name.account, claim.row.operation, claim.row.step_name
            )
        return last is not None and self._form(places(*last)) != form

    def _form(self, found: Form | None) -> Form | None:
        """What of the places decides whether the row is found. By key alone: the shape of the path, because it carries
        the key or is not asked about."""
        if found is None or self._rule.by_reference or self._rule.by_events:
            return found
        return of_path(found)

    @property
    def _rule(self) -> LookupRule:
        return self.lane.provider.contract.lookup

    async def _found(self, questions: Sequence[Question], why: str, lease_ends: float) -> Disbelief | None:
        doubt = None
        for question in questions:
            answer, seen = await self.lane.ask(question, lease_ends=lease_ends)
            if isinstance(answer, CouldNotAsk):
                note = f"not trusted: the control question failed ({seen.note or seen.error or seen.http_status})"
                return Disbelief(note, False, seen.http_status, answer.retry_after)
            if not isinstance(answer, Absent):
                return None
            doubt = Disbelief(f"{why} (another account?)", True, seen.http_status)
        return doubt

    def _said(self, changed: Sequence[str]) -> str:
        return f"not trusted: since it was sent, {' and '.join(changed)} have changed: {WHAT_TO_DO}"

    def _is_good(self, of: Of) -> bool:
        return asyncio.get_running_loop().time() < self._good_until.get(of, 0.0)

    def _believe(self, of: Of) -> None:
        now = asyncio.get_running_loop().time()
        self._good_until = {key: until for key, until in self._good_until.items() if until > now}
        self._good_until[of] = now + GOOD_FOR


def not_trusted(doubt: Disbelief, seen: Seen) -> tuple[LookupOutcome, Seen]:
    """What a look comes to that is not believed."""
    status = seen.http_status if doubt.http_status is None else doubt.http_status
    return CouldNotAsk(doubt.retry_after), Seen(status, note=doubt.note, started=True)

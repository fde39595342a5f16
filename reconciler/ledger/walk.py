"""One lane's walk: the provider's list page by page, then what must have been on it and was not.

Any number of walks may run at once, beside the daemons: nothing is held between two pages, what is settled goes through
the one gate, and an entry is opened once. Of what was seen a few bytes are kept for each object.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final
from uuid import UUID, uuid4

from idem.outbox.calls.lane import Lane
from idem.outbox.calls.lookup_pages import ListFailed
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outbox_row import OutboxRow, StoredProof
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, Proof, Refused, Seen, name
from idem.outbox.domain.provider import Item
from idem.outbox.domain.transition import Evidence
from idem.outbox.observe import telemetry
from idem.outbox.operator import pause
from idem.outbox.settle import key_rotation
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.open_step import open_step
from idem.outbox.settle.proofs import apply
from idem.outbox.values import clock
from idem.outbox.values.errors import ConfigError, Unrenderable
from idem.reconciler.ledger import calls, compare, discrepancies
from idem.reconciler.ledger.calls import LedgerMatch
from idem.reconciler.ledger.compare import LedgerCall, Reading
from idem.reconciler.ledger.discrepancies import Discrepancy
from idem.reconciler.ledger.report import LaneReport
from idem.reconciler.ledger.window import Since, window
from idem.reconciler.webhooks.matching import provider_key

PAGE: Final = 100
"""Objects, or intents, that are compared at a time."""

MOST: Final = 1000
"""Discrepancies of a lane with which a walk ends: so many are a mistake in the contract (a tag, a pointer to the key),
and nobody would read them."""

SPARE: Final = 60.0
"""Seconds that a question may wait for its slot."""


class WalkStopped(Exception):
    """The walk cannot go on. The text says why, for people."""


@dataclass(eq=False, repr=False)
class LedgerWalk:
    """The walk over one lane."""

    database: Database
    catalogue: Catalogue
    renderer: Renderer
    lane_name: LaneScope
    lane: Lane
    dry_run: bool = False

    def __post_init__(self) -> None:
        self._report = LaneReport(self.lane_name.provider, self.lane_name.account)
        self._objects: set[int] = set()
        self._calls: set[int] = set()

    async def run(self, since: Since) -> LaneReport:
        """The whole of it. What cannot be completed is said in the report.

        Raises OperatorRefused for a time that cannot be compared, and what an unreachable database raises.
        """
        report, contract = self._report, self.lane.provider.contract
        async with self.database.connection() as connection:
            report.window = await window(connection, since, contract.lookup.horizon)
        if not contract.listed:
            report.walked = "not_listed"
            report.why = f"the contract has no [providers.{contract.provider}.list]"
            return report
        try:
            await self._theirs(*report.window)
            await self._of_ours(*report.window)
            if report.counts["not_compared"]:
                raise WalkStopped(f"not everything could be compared: {report.why or 'see the log'}")
        except (WalkStopped, ListFailed, ConfigError, Unrenderable) as error:
            report.walked, report.why = "incomplete", str(error)
        return report

    async def _theirs(self, since: float, until: float) -> None:
        page: list[Item] = []
        await self._not_paused()
        async with aclosing(self.lane.list(since, until)) as items:
            try:
                async for item in items:
                    page.append(item)
                    if len(page) >= PAGE:
                        await self._compare(page)
                        page = []
                        await self._not_paused()
            except ListFailed:
                # Of a list that breaks off the part that was shown counts all the same.
                await self._compare(page)
                raise
        await self._compare(page)

    async def _not_paused(self) -> None:
        async with self.database.connection() as connection:
            paused = await pause.read(connection, self.lane_name.provider, self.lane_name.account)
        if paused.lookups:
            raise WalkStopped(f"look-ups are paused: `idem resume {self.lane_name.provider}`, then check again")
        if self._report.discrepancies >= MOST:
            raise WalkStopped(
                f"{MOST} discrepancies and more: check `deployment_tag`, `list.key` and `list.reference` of the "
                "contract first"
            )

    async def _compare(self, page: Sequence[Item]) -> None:
        items = [item for item in page if self._is_new(item)]
        self._report.objects += len(items)
        if not items:
            return
        async with self.database.connection() as connection:
            matches = await calls.find(connection, self.lane_name, items)
        for item, match in zip(items, matches, strict=True):
            for ours in match.known:
                if compare.same_object(ours, item, self._wanted(ours)):
                    self._calls.add(_digest(ours.identity.bytes))
            try:
                await self._count(item, match)
            except Exception as error:  # one object must never stop the walk over the others
                if isinstance(error, (*AWAY, *REFUSED)):
                    raise
                telemetry.broken("reconciler", error, f"the ledger check of {self.lane_name.provider} {item.reference}")
                self._report.counts["not_compared"] += 1

    def _is_new(self, item: Item) -> bool:
        # A list that moves while it is read shows an object on two pages.
        named = item.reference or item.key
        if named is None:
            return True
        digest = _digest(named.encode("utf-8", "surrogatepass"))
        if digest in self._objects:
            return False
        self._objects.add(digest)
        return True

    async def _count(self, item: Item, match: LedgerMatch, *, again: bool = True, fresh: bool = False) -> None:
        counts = self._report.counts
        if match.ours is None and match.known:
            # Several calls have this reference: it is known here, and speaks for none of them.
            counts["matched"] += 1
            return
        reading = compare.read(
            item,
            match.ours,
            self.lane.provider.contract,
            void=await self._is_void(item, match.ours),
            wanted=self._wanted(match.ours),
        )
        if reading.kind == "settled_now" and match.ours is not None:
            done = await self._settle(item, match.ours)
        elif reading.kind == "theirs_only" and match.ours is not None and not fresh and self._is_new_end(match.ours):
            # The page may be older than the end that is known here: the object is asked for anew.
            await self._confirm(match.ours)
            return
        elif reading.kind == "theirs_only":
            done = await self._open(item, match.ours, reading)
        else:
            counts[reading.kind] += 1
            return
        if done:
            return
        if again and match.ours is not None:
            # It has moved since it was read.
            async with self.database.connection() as connection:
                (match,) = await calls.find(connection, self.lane_name, [item])
            await self._count(item, match, again=False, fresh=fresh)
        else:
            counts["open"] += 1

    def _is_new_end(self, ours: LedgerCall) -> bool:
        assert self._report.window is not None
        return ours.settled_at is not None and ours.settled_at.timestamp() > self._report.window[1]

    def _wanted(self, ours: LedgerCall | None) -> str | None:
        return None if ours is None else self.lane.provider.kind(ours.path)

    async def _is_void(self, item: Item, ours: LedgerCall | None) -> bool:
        key = provider_key(item.key)
        if ours is None or ours.row_id is None or key is None or not isinstance(item.said, Refused):
            return False
        async with self.database.connection() as connection:
            return await key_rotation.is_void(connection, ours.row_id, key)

    async def _settle(self, item: Item, ours: LedgerCall) -> bool:
        """Apply what the object says, through the gate; False: the call has moved, and must be read again."""
        assert item.said is not None and ours.row_id is not None  # `compare` asks for it
        report, terms = self._report, self.catalogue.cautious(ours.operation, self.lane_name.provider, ours.step)
        said: Proof = replace(item.said, reference=item.said.reference or item.reference)
        became = "not_written"
        if not terms.known:
            report.counts["open"] += 1
            return True
        if not self.dry_run:
            rendered = await self.renderer.render(terms.operation, said, ours.intent_id, await self._open_row(ours))
            proof = StoredProof(uuid4(), "reconciler", said, rendered.answer, interim=rendered.interim)
            note = Seen(note="on the provider's list")
            evidence = Evidence("reconciler", "ledger_check", name(said), note, said.reference)
            letters = (rendered.letter,) if rendered.letter else ()
            async with self.database.connection() as connection:
                became = await apply(connection, ours.row_id, proof, evidence, terms, letters=letters, wait=False)
            telemetry.proof_applied(ours.intent_id, "reconciler", became)
        match became:
            case "applied" | "stored" | "later_fact" | "not_written":
                report.counts["settled_now"] += 1
                report.settled.append(
                    {"intent": str(ours.intent_id), **({} if ours.step is None else {"step": ours.step}),
                     "was": str(ours.state), "outcome": name(said), "became": became, "reference": said.reference}
                )  # fmt: skip
                return True
            case "agrees":
                report.counts["matched"] += 1
                return True
            case _:
                return False

    async def _open_row(self, ours: LedgerCall) -> OutboxRow | None:
        """Of a flow: what the client's answer would be made of."""
        if ours.step is None or ours.row_id is None:
            return None
        async with self.database.connection() as connection:
            return await open_step(connection, ours.row_id)

    async def _open(self, item: Item | None, ours: LedgerCall | None, reading: Reading) -> bool:
        assert self._report.window is not None
        found = Discrepancy(
            "ours_only" if item is None else "theirs_only", self.lane_name.provider, self.lane_name.account, ours, item,
            reading.differs, reading.ours_by, self._report.window,
        )  # fmt: skip
        async with self.database.connection() as connection:
            entry = await (discrepancies.known if self.dry_run else discrepancies.open_once)(connection, found)
        if entry is None and not self.dry_run:
            return False
        self._report.add(found, entry)
        return True

    async def _of_ours(self, since: float, until: float) -> None:
        """What succeeded here in the window and was not on the list: the provider is asked about each."""
        at, after = datetime.fromtimestamp(since, UTC), UUID(int=0)
        while True:
            async with self.database.connection() as connection:
                ended, (at, after) = await calls.ended(
                    connection, self.lane_name, at=at, after=after, until=until, limit=PAGE
                )
                missing = [each for each in ended if _digest((each[1] or each[0]).bytes) not in self._calls]
                known = list((await calls.describe(connection, missing)).values()) if missing else []
            for start in range(0, len(known), self.lane.slots):
                await self._not_paused()
                chunk = known[start : start + self.lane.slots]
                done = await asyncio.gather(*(self._confirm(ours) for ours in chunk), return_exceptions=True)
                for error in done:
                    if error is not None:
                        raise error
            if len(ended) < PAGE:
                return

    async def _confirm(self, ours: LedgerCall) -> None:
        contract = self.lane.provider.contract
        lease_ends = clock.boottime() + SPARE + self.lane.margin + contract.deadline
        lookup, seen = await self.lane.ask(ours.question, lease_ends=lease_ends)
        lane, intent = self.lane_name, ours.intent_id
        telemetry.looked_up(lane.provider, lane.account, intent, "ledger_check", name(lookup), seen.why)
        match lookup:
            case Absent() if ours.outcome == "succeeded":
                await self._open(None, ours, Reading("ours_only"))
            case Absent() | CouldNotAsk():
                self._report.counts["not_compared"] += 1
                if self._report.why is None:
                    self._report.why = seen.note
            case _:
                key = ours.keys[0] if ours.keys else None
                shown = Item(lookup.reference, key, lookup, lookup.status, kind=self._wanted(ours))
                await self._count(shown, LedgerMatch(ours, (ours,)), fresh=True)


def _digest(of: bytes) -> int:
    return int.from_bytes(blake2b(of, digest_size=8).digest())

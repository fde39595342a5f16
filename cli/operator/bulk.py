"""Redrive many dead letters: count them first, check each by itself, release them at a rate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from idem.cli.base import opening
from idem.cli.base.failures import FINDINGS
from idem.cli.base.option_groups import OperatorOptions
from idem.cli.base.options import confirm
from idem.cli.base.output import as_json, say, table
from idem.outbox.domain.states import Reason
from idem.outbox.operator import guards
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.values.plural import several

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from idem.outbox.domain.catalogue import Catalogue

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects open dead letters: of a provider, with a reason, since a time (or a number of seconds ago)."""

    provider: str | None
    reason: str | None
    since: datetime | float | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A selected intent, the version that was read, and why it is skipped, if it is.

    `letter` is set for an event that a handler has not handled and, without intent, for an event that matched no call;
    the version then counts how often it was seen.
    """

    intent: UUID | None
    version: int
    why_not: str | None
    letter: UUID | None = None

    @property
    def named(self) -> dict[str, Any]:
        """The item as data, for the output."""
        return {"dead_letter": self.letter} if self.intent is None else {"intent": self.intent}


async def redrive(
    options: OperatorOptions, selection: Selection, *, reason: str, expect: int | None, rate: float
) -> None:
    """Redrive every selected entry that allows it; exit code 3 if some were skipped."""
    from idem.outbox.operator import actions, dead_letters

    async with opening.deciding(options.config) as (connection, catalogue):
        candidates = await _candidates(connection, catalogue, selection)
        ready = [each for each in candidates if each.why_not is None]
        kinds = ("intent", "intents") if all(each.intent for each in candidates) else ("entry", "entries")
        match = f"{several(len(candidates), *kinds)} {'matches' if len(candidates) == 1 else 'match'}"
        say(
            f"{match}: {len(ready)} will be redriven, {rate:g} a second; {len(candidates) - len(ready)} will be skipped"
        )
        for why, count in Counter(each.why_not for each in candidates if each.why_not).most_common(10):
            say(f"  {count} x {why}")
        if expect is None:
            raise OperatorRefused(f"nothing was changed: state how many you expect, e.g. --expect {len(candidates)}")
        if expect != len(candidates):
            raise OperatorRefused(f"nothing was changed: {match}, but you expect {expect}. Check the selection")
        confirm(f"Redrive {several(len(ready), *kinds)}?", yes=options.yes)
        by = options.operator
        done: list[dict[str, Any]] = []
        skipped = [each.named | {"why": each.why_not} for each in candidates if each.why_not is not None]
        for each in ready:
            try:
                if each.intent is None:
                    assert each.letter is not None  # an event
                    await dead_letters.try_event_again(connection, each.letter, by=by, reason=reason, seen=each.version)
                elif each.letter is not None:
                    await dead_letters.run_again(connection, each.letter, by=by, reason=reason, seen=each.version)
                else:
                    await actions.redrive(
                        connection, catalogue, each.intent, by=by, reason=reason, version=each.version,
                        due_in=len(done) / rate,
                    )  # fmt: skip
            except OperatorRefused as refusal:
                skipped.append(each.named | {"why": str(refusal)})
            else:
                done.append(each.named)
    if options.as_data:
        as_json({"redriven": done, "skipped": skipped})
    else:
        typer.echo(f"redriven: {len(done)}, skipped: {len(skipped)}")
        if skipped:
            table(
                ["skipped", "why"],
                [[each.get("intent") or each["dead_letter"], each["why"]] for each in skipped],
                empty="",
            )
    if skipped:
        raise typer.Exit(FINDINGS)


async def _candidates(connection: AsyncConnection[Any], catalogue: Catalogue, selection: Selection) -> list[Candidate]:
    from idem.outbox.operator import listing

    chosen: list[Candidate] = []
    versions: dict[UUID, int] = {}
    after: UUID | None = None
    since = await opening.time_of(connection, selection.since)
    while True:
        page = await listing.dead_letters(
            connection, reason=selection.reason, provider=selection.provider, since=since, after=after, limit=PAGE,
        )  # fmt: skip
        versions |= {each["intent_id"]: each["version"] for each in page if each["intent_id"] is not None}
        chosen += [
            Candidate(UUID(each["details"]["intent"]), each["seen"], None, each["id"])
            for each in page
            if each["reason"] == Reason.HANDLER_FAILED
        ]
        chosen += [
            Candidate(None, each["seen"], None, each["id"])
            for each in page
            if each["reason"] == Reason.UNMATCHED_WEBHOOK
        ]
        if len(page) < PAGE:
            break
        after = page[-1]["id"]
    return chosen + [Candidate(each, versions[each], await _why_not(connection, catalogue, each)) for each in versions]


async def _why_not(connection: AsyncConnection[Any], catalogue: Catalogue, intent: UUID) -> str | None:
    from idem.outbox.operator import locking

    held = await locking.snapshot(connection, intent)
    if held is None:
        return "it is already completed"
    if held.row.status == "unknown":
        return "it is unknown: decide unknown intents one by one"
    terms = catalogue.of(held.row)
    if terms is None:
        return f"operation {held.row.operation} with provider {held.row.provider} is not in this configuration"
    return guards.against_redrive(held, terms, sure=False)

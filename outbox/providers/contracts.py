"""Checks of a contract at start-up: one that could not settle, or would settle wrongly, is refused.

Each finding names the setting below the provider, what is wrong, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, Literal, TypeAlias

from idem.outbox.contract import Contract
from idem.outbox.durations import text

Level: TypeAlias = Literal["error", "warning"]

TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake in the configuration. `where` is the setting's path, `line` its line in idem.toml if it is known."""

    level: Level
    where: str
    what: str
    do: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        return f"{self.where}{line}: {self.what}. {self.do}"


def completed(contract: Contract, start_mark: bool | None = None) -> Contract:
    """The contract with the start mark that follows from its key rule, unless `start_mark` says otherwise.

    For a provider that knows no keys it is the only proof that a swept call was never begun.
    """
    return replace(contract, start_mark=contract.key.carrier == "none" if start_mark is None else start_mark)


def check(
    contract: Contract,
    *,
    lease: float,
    margin: float,
    said_unsettleable: bool = True,
    rules: bool = True,
    events: bool = False,
) -> list[Finding]:
    """Every finding about a contract. `lease` and `margin` are the worker's, in seconds.

    `said_unsettleable`: whether `on_unsettleable` was written down; `events`: whether webhooks or an event feed can
    settle; `rules`: whether there is an outcome rule.
    """
    return [
        *_times(contract, lease, margin),
        *_schedules(contract, lease),
        *_key(contract),
        *_settling(contract, said_unsettleable, events),
        *_rest(contract, rules),
    ]


def _error(where: str, what: str, do: str) -> Finding:
    return Finding("error", where, what, do)


def _warning(where: str, what: str, do: str) -> Finding:
    return Finding("warning", where, what, do)


def _times(contract: Contract, lease: float, margin: float) -> Iterator[Finding]:
    for name in ("connect_timeout", "deadline", "flight_limit", "retry_after_cap", "pending_limit"):
        if getattr(contract, name) <= 0:
            yield _error(name, "it must be more than 0", "Give a duration such as 20s")
    if contract.deadline >= lease:
        yield _error(
            "deadline",
            f"a call may take {text(contract.deadline)}, but its lease ends after {text(lease)}",
            "Make it shorter than worker.lease, or worker.lease longer",
        )
    elif contract.deadline + margin >= lease:
        yield _error(
            "deadline",
            f"{text(contract.deadline)} and worker.margin ({text(margin)}) do not fit into the lease of {text(lease)}: "
            "no call would ever be begun",
            "Make worker.lease longer than both together, with room for connecting",
        )
    if contract.connect_timeout > contract.deadline:
        yield _warning(
            "connect_timeout",
            f"it is longer than the deadline of {text(contract.deadline)}, which ends the whole call",
            "Make it shorter than deadline",
        )
    if contract.flight_limit < contract.deadline:
        yield _error(
            "flight_limit",
            f"a request may be acted upon for {text(contract.flight_limit)}, which is less than our own deadline of "
            f"{text(contract.deadline)}",
            "Make it at least as long as deadline; 2m covers usual proxies",
        )
    if contract.pause_allowance < 0:
        yield _error("pause_allowance", "it is negative", "Give a duration such as 15m")


def _schedules(contract: Contract, lease: float) -> Iterator[Finding]:
    for name in ("schedule", "pending_schedule"):
        steps = getattr(contract, name)
        if not steps:
            yield _error(name, "it is empty, so nobody would ever look", 'Give at least one time, as in ["5s", "2m"]')
        elif list(steps) != sorted(set(steps)) or steps[0] <= 0:
            yield _error(name, "its times do not grow", "Sort them, each longer than the one before, the first above 0")
    if not contract.schedule:
        return
    reach, quiet = contract.schedule[-1], contract.lookup.horizon + contract.flight_limit
    if reach <= quiet:
        yield _error(
            "schedule",
            f"its last look is after {text(reach)}, but an absence counts only after horizon and flight_limit, "
            f"{text(quiet)}",
            "Add a later time",
        )
    elif reach <= quiet + lease + contract.pause_allowance:
        yield _warning(
            "schedule",
            f"its last look is after {text(reach)}; after a crash an absence counts only after lease, horizon, "
            f"flight_limit and pause_allowance, {text(quiet + lease + contract.pause_allowance)}",
            "Add a later time, or each crash ends in a dead letter",
        )


def _key(contract: Contract) -> Iterator[Finding]:
    key = contract.key
    if key.carrier == "none":
        if key.replay != "none":
            yield _error(
                "key.replay",
                f"it is {key.replay!r}, but no key is carried to the provider (key.carrier is none): a second send "
                "would be a second effect",
                "Leave it out, or say where the key is carried",
            )
        if key.name is not None:
            yield _error("key.name", "there is no carrier for it", 'Set key.carrier to "header" or "body"')
        if not contract.start_mark:
            yield _warning(
                "start_mark",
                "it is off for a provider that knows no keys, so every crash between claim and call is unknown",
                "Leave it out: it is on for such providers",
            )
        return
    if key.name is None:
        yield _error(
            "key.name", f"the {key.carrier} that carries the key has no name", 'As in name = "Idempotency-Key"'
        )
    elif key.carrier == "header" and not TOKEN.fullmatch(key.name):
        yield _error("key.name", f"{key.name!r} is no name of a header", 'As in name = "Idempotency-Key"')
    if key.replay == "none":
        return
    least = contract.flight_limit + contract.pause_allowance
    if key.retention <= 0:
        yield _error(
            "key.retention",
            f"replay is {key.replay!r}, but how long the provider remembers a key is not said",
            "Give the shortest time that it promises, as in 24h",
        )
    elif key.margin < least:
        yield _error(
            "key.margin",
            f"{text(key.margin)} is less than flight_limit and pause_allowance together, {text(least)}: a replay could "
            "arrive after the provider has forgotten the key, and be executed anew",
            f"Make it at least {text(least)}, or leave it out",
        )
    elif key.retention < 2 * key.margin:
        yield _warning(
            "key.retention",
            f"the provider remembers a key for {text(key.retention)}, less than twice the margin of "
            f"{text(key.margin)}: there will be no replays",
            'Say replay = "none", or lower flight_limit and pause_allowance if that is the truth',
        )


def _settling(contract: Contract, said: bool, events: bool) -> Iterator[Finding]:
    can_settle = contract.replays or contract.lookup.possible or events
    if not can_settle and not said:
        yield _error(
            "on_unsettleable",
            "after a timeout nothing can tell what happened: no replay under the key, no look-up, no events",
            'Say that a person decides then, as on_unsettleable = "operator"',
        )
    if contract.on_unsettleable != "operator":
        yield _warning(
            "on_unsettleable",
            f"{contract.on_unsettleable!r} is a standing order to decide without proof",
            "Keep it only where no value is at risk (a mail, a text message)",
        )
    if contract.lookup.agree < 1:
        yield _error("lookup.agree", "at least one look must say so", "Use 2 or more")
    if contract.lookup.horizon < 0:
        yield _error("lookup.horizon", "it is negative", "Give 0s if a look-up sees every write at once")


def _rest(contract: Contract, rules: bool) -> Iterator[Finding]:
    if not rules:
        yield _error(
            "outcome",
            "there is no rule that calls an answer final, answer or pending, so every call would end unknown",
            'As in [[providers.<name>.outcome]] says = "final", when = {"/status" = "succeeded"}',
        )
    if contract.concurrency is not None and contract.concurrency < 1:
        yield _error(
            "concurrency", "it must be 1 or more", "To stop a provider, pause its lane: docs/on-call.md says how"
        )
    if contract.verified is not None:
        try:
            date.fromisoformat(contract.verified)
        except ValueError:
            yield _error("verified", f"{contract.verified!r} is no date", "Write it as 2026-11-28")

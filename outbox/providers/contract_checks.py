"""Checks of a contract at start-up: one that could not settle, or would settle wrongly, is refused.

Each finding names the setting below the provider, what is wrong, and what to do. Of a `Contract` that Python code made
it names the field: `retry_after_cap` and `key.margin` are no settings of idem.toml, so only such a contract has them
wrong.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

from idem.outbox.domain.contract import Contract
from idem.outbox.providers.findings import Finding, Level, error, warning
from idem.outbox.providers.request_parts import HEADER_NAME, NO_CARRIERS
from idem.outbox.providers.settle_checks import about_settling
from idem.outbox.values.durations import text

__all__ = ["Finding", "Level", "check", "completed"]


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
    today: date | None = None,
    believed: float = 365 * 86400,
) -> list[Finding]:
    """Every finding about a contract. `lease` and `margin` are the worker's, in seconds.

    `said_unsettleable`: whether `on_unsettleable` was written down; `events`: whether webhooks or an event feed can
    settle; `rules`: whether there is an outcome rule. `today` is what `verified` is compared with, None: with nothing;
    `believed`: seconds for which it holds.
    """
    return [
        *_times(contract, lease, margin),
        *_schedules(contract, lease),
        *_key(contract),
        *about_settling(contract, said_unsettleable, events),
        *_rest(contract, rules),
        *_verified(contract, today, believed),
    ]


def _times(contract: Contract, lease: float, margin: float) -> Iterator[Finding]:
    for name in ("connect_timeout", "deadline", "flight_limit", "retry_after_cap", "pending_limit"):
        if getattr(contract, name) <= 0:
            yield error(name, "it must be more than 0", "Give a duration such as 20s")
    if contract.keep_alive < 0:
        yield error("keep_alive", "it is less than 0", "Give a duration such as 1.5s, or 0 for no connection twice")
    if contract.deadline >= lease:
        yield error(
            "deadline",
            f"a call may take {text(contract.deadline)}, but its lease ends after {text(lease)}",
            "Make it shorter than worker.lease, or worker.lease longer",
        )
    elif contract.deadline + margin >= lease:
        yield error(
            "deadline",
            f"{text(contract.deadline)} and worker.margin ({text(margin)}) do not fit into the lease of {text(lease)}: "
            "no call would ever be begun",
            "Make worker.lease longer than both together, with room for connecting",
        )
    if contract.connect_timeout > contract.deadline:
        yield warning(
            "connect_timeout",
            f"it is longer than the deadline of {text(contract.deadline)}, which ends the whole call",
            "Make it shorter than deadline",
        )
    if contract.flight_limit < contract.deadline:
        yield error(
            "flight_limit",
            f"a request may be acted upon for {text(contract.flight_limit)}, which is less than our own deadline of "
            f"{text(contract.deadline)}",
            "Make it at least as long as deadline; 2m covers usual proxies",
        )
    if contract.pause_allowance < 0:
        yield error("pause_allowance", "it is negative", "Give a duration such as 15m")


def _schedules(contract: Contract, lease: float) -> Iterator[Finding]:
    for name in ("schedule", "pending_schedule"):
        steps = getattr(contract, name)
        if not steps:
            yield error(name, "it is empty, so nobody would ever look", 'Give at least one time, as in ["5s", "2m"]')
        elif list(steps) != sorted(set(steps)) or steps[0] <= 0:
            yield error(name, "its times do not grow", "Sort them, each longer than the one before, the first above 0")
    steps = contract.pending_schedule
    if steps and 0 < contract.pending_limit <= steps[0]:
        yield warning(
            "pending_schedule",
            f"its first look is after {text(steps[0])}, and what is pending is a dead letter after "
            f"{text(contract.pending_limit)}",
            "Add an earlier time, or make pending_limit longer",
        )
    if not contract.schedule:
        return
    if contract.lookup.possible and len(contract.schedule) < contract.lookup.agree:
        yield warning(
            "lookup.agree",
            f"{contract.lookup.agree} look-ups must agree, and schedule has {len(contract.schedule)}: each absence "
            "ends in a dead letter",
            "Add times to schedule, or let fewer look-ups agree",
        )
    reach, quiet = contract.schedule[-1], contract.lookup.horizon + contract.flight_limit
    if reach <= quiet:
        yield error(
            "schedule",
            f"its last look is after {text(reach)}, but an absence counts only after horizon and flight_limit, "
            f"{text(quiet)}",
            "Add a later time",
        )
    elif reach <= quiet + lease + contract.pause_allowance:
        yield warning(
            "schedule",
            f"its last look is after {text(reach)}; after a crash an absence counts only after lease, horizon, "
            f"flight_limit and pause_allowance, {text(quiet + lease + contract.pause_allowance)}",
            "Add a later time, or each crash ends in a dead letter",
        )


def _key(contract: Contract) -> Iterator[Finding]:
    key = contract.key
    if contract.retention_max is not None and contract.retention_max < key.retention:
        yield error(
            "retention_max",
            f"{text(contract.retention_max)} is less than key.retention, {text(key.retention)}: what a provider "
            "promises at least, it may not have forgotten",
            "Give the longest time that it may remember a key, or leave it out",
        )
    if key.carrier == "none":
        if key.replay != "none":
            yield error(
                "key.replay",
                f"it is {key.replay!r}, but no key is carried to the provider (key.carrier is none): a second send "
                "would be a second effect",
                "Leave it out, or say where the key is carried",
            )
        if key.name is not None:
            yield error("key.name", "there is no carrier for it", 'Set key.carrier to "header" or "body"')
        if not contract.start_mark:
            yield warning(
                "start_mark",
                "it is off for a provider that knows no keys, so every crash between claim and call is unknown",
                "Leave it out: it is on for such providers",
            )
        return
    if key.name is None and key.carrier != "argument":
        yield error("key.name", f"the {key.carrier} that carries the key has no name", 'As in name = "Idempotency-Key"')
    elif key.carrier == "header" and not HEADER_NAME.fullmatch(key.name or ""):
        yield error("key.name", f"{key.name!r} is not the name of a header", 'As in name = "Idempotency-Key"')
    elif key.carrier == "header" and (key.name or "").lower() in NO_CARRIERS:
        yield error(
            "key.name",
            f"the header {key.name!r} has another meaning, and no call could be made with the key in it",
            "Copy the name from the provider's documentation",
        )
    if key.replay == "none":
        return
    least = contract.flight_limit + contract.pause_allowance
    if key.retention <= 0:
        yield error(
            "key.retention",
            f"replay is {key.replay!r}, but how long the provider remembers a key is not said",
            "Give the shortest time that it promises, as in 24h",
        )
    elif key.margin < least:
        yield error(
            "key.margin",
            f"{text(key.margin)} is less than flight_limit and pause_allowance together, {text(least)}: a replay could "
            "arrive after the provider has forgotten the key, and be executed anew",
            f"Make KeyRule.margin of this Contract at least {least:g} seconds",
        )
    elif key.retention < 2 * key.margin:
        yield warning(
            "key.retention",
            f"the provider remembers a key for {text(key.retention)}, less than twice the margin of "
            f"{text(key.margin)}: there will be no replays",
            'Say replay = "none", or lower flight_limit and pause_allowance if that is the truth',
        )
    if contract.replays and contract.schedule and contract.schedule[0] >= contract.replay_window:
        yield error(
            "schedule",
            f"its first look is after {text(contract.schedule[0])}, but a replay is safe for "
            f"{text(contract.replay_window)} only: none would ever be made",
            "Add an earlier time",
        )


def _rest(contract: Contract, rules: bool) -> Iterator[Finding]:
    if not rules:
        yield error(
            "outcome",
            "there is no rule that calls an answer final, answer or pending, so every call would end unknown",
            'As in [[providers.<name>.outcome]] says = "final", when = {"/status" = "succeeded"}',
        )
    limits = contract.limits
    if limits.exact and limits.concurrency is None:
        yield warning("limits.exact", "there is no concurrency that could be exact", "Say limits.concurrency too")


def _verified(contract: Contract, today: date | None, believed: float) -> Iterator[Finding]:
    if contract.verified is None:
        if today is not None:
            yield warning(
                "verified",
                "nothing says when these facts were last checked",
                f'Compare them with the provider\'s documentation, then write verified = "{today}"',
            )
        return
    try:
        checked = date.fromisoformat(contract.verified)
    except ValueError:
        yield error("verified", f"{contract.verified!r} is not a date", "Write it as 2026-11-28")
        return
    if today is None:
        return
    days = (today - checked).days
    # Somewhere it is tomorrow already.
    if checked > today + timedelta(days=1):
        yield error("verified", f"{checked} lies in the future", "Write the day on which the facts were checked")
    elif days * 86400 > believed:
        yield warning(
            "verified",
            f"these facts were last checked {days} days ago, and providers change them",
            f'Compare them with the provider\'s documentation, then write verified = "{today}"',
        )

"""Daemons: whether one of each kind runs, and when it last made a pass."""

from typing import Any

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination, RecordDict
from idem.cli.doctor.findings import CheckResult, Findings, error, ok, warning
from idem.outbox.operator.ages import DAEMONS, SILENT
from idem.outbox.values.durations import text
from idem.outbox.values.plural import several

KINDS = {
    "worker": "due rows are not sent",
    "sweeper": "claims of a crashed process stay claimed",
    "reconciler": "nothing unknown is settled",
}
"""What stops without such a daemon."""

END = (
    "If process {pid} still exists on {host}, it hangs: terminate it with kill -KILL {pid} (`idem run` then starts "
    "another)"
)

OPEN = "SELECT EXISTS (SELECT FROM idem.outbox) AS any"


async def daemons(examination: Examination) -> Findings:
    """One daemon of each kind must run and make passes; a missing one is an error if rows are open."""
    found = await examination.all(DAEMONS, {"silent": SILENT})
    work = (await examination.one(OPEN))["any"]
    named: list[RecordDict] = []
    for kind, otherwise in KINDS.items():
        same = [each for each in found if each["kind"] == kind]
        alive = [each for each in same if each["life"] == "alive"]
        if not alive:
            last = min((each["seen"] for each in same), default=None)
            what = f"no {kind} is running " + ("and none ever ran" if last is None else f"(last seen {age(last)} ago)")
            do = f"Start it: idem {kind} run, or all of them: idem run"
            if same and same[0]["life"] == "silent":
                do = f"{END.format(**same[0])}. {do}"
                named.append(same[0])
            what = f"{what}: {otherwise}" if work else f"{what}. No row is open yet, but without a {kind} {otherwise}"
            yield (error if work else warning)(what, do)
            continue
        limit = examination.limits.last_pass
        hanging = [each for each in alive if _late(each, limit)]
        for each in hanging:
            yield _hangs(each, limit, otherwise)
        since = [_idle(each) for each in alive]
        if min(since) > limit and not hanging:
            yield error(
                f"{several(len(alive), kind)} alive, but the last pass was {age(min(since))} ago, more than "
                f"{text(limit)}: {otherwise}",
                f"Search its log for `broken` or `database_away`; restart it. Host {alive[0]['host']}, process "
                f"{alive[0]['pid']}",
            )
    for each in found:
        article = "an" if each["kind"] == "api" else "a"
        if each["life"] == "silent" and each["seen"] < 3600 and each not in named:
            yield warning(
                f"{article} {each['kind']} on {each['host']} (process {each['pid']}) stopped reporting "
                f"{age(each['seen'])} ago without a shutdown message",
                f"{END.format(**each)}. Its claims expire by themselves",
            )
    alive = [each for each in found if each["life"] == "alive"]
    counts = ", ".join(
        several(sum(e["kind"] == kind for e in alive), kind) for kind in sorted({e["kind"] for e in alive})
    )
    yield ok(f"{counts} alive and working")


def _late(alive: RecordDict, limit: float) -> list[dict[str, Any]]:
    # Each kind of pass has its own interval, so the check counts from when the next pass was due.
    return [each for each in alive["overdue"] if each["overdue"] > limit]


def _hangs(alive: RecordDict, limit: float, otherwise: str) -> CheckResult:
    worst, *others = _late(alive, limit)
    lane = f" for lane {worst['provider']}/{worst['account']}" if worst["provider"] else ""
    more = f", and {several(len(others), 'other pass', 'other passes')} of it too" if others else ""
    return error(
        f"the {alive['kind']} on {alive['host']} (process {alive['pid']}) has made no pass `{worst['pass']}`{lane} for "
        f"{age(worst['age'])}, more than {text(limit)} over its interval{more}: {otherwise}",
        "Search its log for `broken`, `database_away` or `statement_refused`: another session may hold a lock that it "
        "waits for. If not, restart it",
    )


def _idle(alive: RecordDict) -> float:
    # The first pass comes within seconds of the start.
    up: float = (alive["seen_at"] - alive["started_at"]).total_seconds() + alive["seen"]
    return up if alive["passed"] is None else float(alive["passed"])

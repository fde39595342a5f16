"""Open rows: the oldest of each status (P5), paused lanes, and rows that this configuration does not serve."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination, RecordDict
from idem.cli.doctor.findings import CheckResult, Findings, error, ok, warning
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.operator.ages import ORDER, PAUSED
from idem.outbox.operator.pause import named
from idem.outbox.values.durations import text
from idem.outbox.values.plural import several
from idem.outbox.worker.claim import FORMAT_VERSIONS

MOST = 200_000
"""Rows to read of each kind (queued, claimed, asked about, at rest), the oldest first. The doctor must not read a
queue of millions, and many rows of one kind must not hide the others.
"""

# A queued row counts from its due time, a claim from the end of its lease, any other row from its status change.
OPEN = """
SELECT o.status, o.provider, o.account, o.origin, o.operation, o.step_name, o.format_version,
       CASE WHEN o.status IN ('unknown', 'awaiting')
            THEN coalesce(l.lookups_paused, false) OR coalesce(e.lookups_paused, false)
            ELSE coalesce(l.paused, false) OR coalesce(e.paused, false) END AS paused,
       count(*)::integer AS rows,
       max(extract(epoch FROM statement_timestamp() - CASE o.status
           WHEN 'pending' THEN greatest(o.available_at, o.status_since) WHEN 'unfrozen' THEN o.available_at
           WHEN 'claimed' THEN o.claimed_until ELSE o.status_since END))::float8 AS oldest,
       (count(*) FILTER (WHERE o.left_to_replay > 0))::integer AS replayable,
       (count(*) FILTER (WHERE o.left_to_replay BETWEEN 0 AND least(%(window)s, o.remembered / 2)))::integer AS closing,
       (min(o.left_to_replay) FILTER (WHERE o.left_to_replay > 0))::float8 AS replay_window_left
  FROM (SELECT r.*, least(r.replay_window, s.stated) AS remembered,
               CASE WHEN r.status = 'unknown' AND least(r.replay_window, s.stated) > 0 AND NOT r.key_burned
                    THEN idem.memory_left(r.first_sent_at, r.doubted_since, r.replay_window, s.stated) END
               AS left_to_replay
          FROM ((SELECT q.* FROM idem.outbox q WHERE '' || q.status IN ('approval', 'pending', 'waiting', 'unfrozen')
                  ORDER BY q.start_before, q.id LIMIT %(most)s) UNION ALL
                (SELECT c.* FROM idem.outbox c WHERE c.status = 'claimed'
                  ORDER BY c.claimed_until, c.id LIMIT %(most)s) UNION ALL
                (SELECT a.* FROM idem.outbox a WHERE a.status IN ('unknown', 'awaiting')
                  ORDER BY a.id LIMIT %(most)s) UNION ALL
                (SELECT h.* FROM idem.outbox h WHERE h.status = 'held'
                  ORDER BY h.status_since, h.id LIMIT %(most)s)) r
         CROSS JOIN LATERAL (SELECT (%(stated)s::jsonb ->> r.provider)::float8 AS stated) AS s) o
  LEFT JOIN idem.lanes l ON l.provider = o.provider AND l.account = o.account
  LEFT JOIN idem.lanes e ON e.provider = o.provider AND e.account = ''
 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
"""

DO: Mapping[str, str] = {
    "pending": "Are workers running, and is the lane served? See the checks `daemons`, `unserved` and `refused`",
    "waiting": "`idem intents blocked` names the intent that each ordering key waits for: settle it, or let the others "
    "go on with `idem intents unblock`",
    "approval": "`idem intents list --status approval`: approve or reject them; after `start_within` their "
    "clients must ask again",
    "unfrozen": "Workers render them: are they running, with this operation in their idem.toml?",
    "claimed": "The sweeper ends claims whose lease has expired: is it running? See `daemons`",
    "unknown": "The provider does not answer look-ups, or the reconciler makes none: `idem unknowns list`, the "
    "reconciler's log",
    "awaiting": "Ask the provider: `idem unknowns list --awaiting`",
    "held": "`idem dlq list`: redrive or cancel what is still there; a client's retry also queues it again",
}


KINDS: Mapping[str, str] = {
    "approval": "queued", "pending": "queued", "waiting": "queued", "unfrozen": "queued", "unknown": "asked about",
    "awaiting": "asked about", "held": "at rest",
}  # fmt: skip
"""The kind under which `OPEN` reads a row of each status; a claimed row is its own kind."""


def limit_of(limits: DoctorSettings, status: str) -> float:
    """The age in seconds above which the oldest row of a status is an error."""
    names = {"pending": "queued", "claimed": "unswept"}
    return float(getattr(limits, names.get(status, status)))


async def _open(examination: Examination) -> list[RecordDict]:
    # The current contracts count too, if the configuration can be used.
    stated = {} if examination.configuration is None else examination.catalogue.memories
    values = {"window": examination.limits.replay_window, "most": MOST, "stated": json.dumps(stated)}
    return await examination.all(OPEN, values)


async def ages(examination: Examination) -> Findings:
    """Compare the oldest open row of each status with its limit; paused lanes are a finding of their own."""
    rows = await _open(examination)
    total = sum(each["rows"] for each in rows)
    for finding in _ages(rows, examination.limits):
        yield finding
    of_a_kind = Counter[str]()
    for each in rows:
        of_a_kind[KINDS.get(each["status"], each["status"])] += each["rows"]
    for kind, many in sorted(of_a_kind.items()):
        if many >= MOST:
            yield warning(
                f"at least {many} rows are {kind}; doctor read only the oldest {MOST}",
                "Is a provider down, or are there too few workers? `idem status` counts all rows",
            )
    yield ok(f"{several(total, 'row is', 'rows are')} open, none older than its limit")


def _ages(rows: list[RecordDict], limits: DoctorSettings) -> Iterator[CheckResult]:
    moving = [each for each in rows if not each["paused"]]
    for status, do in DO.items():
        limit, same = limit_of(limits, status), [each for each in moving if each["status"] == status]
        oldest = max((each["oldest"] for each in same), default=0.0)
        if oldest > limit:
            late = [each for each in same if each["oldest"] > limit]
            where = ", ".join(sorted({f"{each['provider']}/{each['account']}" for each in late}))
            what = {"pending": "due for", "claimed": "past its lease for"}.get(status, f"{status} for")
            yield error(
                f"{status}: the oldest of {several(sum(e['rows'] for e in same), 'row')} is {what} {age(oldest)}, more "
                f"than {text(limit)} (lane {where})",
                do,
            )


async def held_keys(examination: Examination) -> Findings:
    """Ordering keys that are held after a refusal; nothing of them is sent until an operator decides."""
    found = await examination.one(ORDER)
    if found["held"]:
        yield warning(
            f"{several(found['held'], 'ordering key is', 'ordering keys are')} held because an intent was refused or "
            f"abandoned, the oldest for {age(found['oldest_held'])}: what has the same key waits",
            "`idem intents blocked` lists them; `idem intents unblock ID --reason ...` lets the others go on. An "
            'operation with on_head_refused = "continue" holds none',
        )
    else:
        yield ok("no ordering key is held")


async def replay_windows(examination: Examination) -> Findings:
    """Unknown rows whose replay window is about to end; after that idem can only look them up."""
    rows = [each for each in await _open(examination) if each["status"] == "unknown"]
    closing = sum(each["closing"] for each in rows)
    left = min((each["replay_window_left"] for each in rows if each["replay_window_left"] is not None), default=None)
    if closing:
        lanes = ", ".join(sorted({f"{each['provider']}/{each['account']}" for each in rows if each["closing"]}))
        yield error(
            f"{several(closing, 'unknown row')} can be replayed for at most {age(left)} (lane {lanes}); after "
            "that only a look-up or an operator can settle them",
            "Find out why the reconciler cannot settle them: its log, `idem unknowns list`, `idem reconcile --now`",
        )
    elif left is None:
        yield ok("no unknown row waits to be replayed")
    else:
        yield ok(f"the shortest replay window has {age(left)} left")


async def paused(examination: Examination) -> Findings:
    """Paused lanes, with the rows that wait."""
    rows = await _open(examination)
    for lane in (await examination.all(PAUSED))[:100]:
        mine = [e for e in rows if e["provider"] == lane["provider"] and lane["account"] in (e["account"], "")]
        asked = [e for e in mine if e["status"] in ("unknown", "awaiting")]
        behind = sum(e["rows"] for e in (asked if lane["what"] == "lookups" else [e for e in mine if e not in asked]))
        waits = {
            "accept": "new intents are refused",
            "calls": f"{several(behind, 'row waits', 'rows wait')} there; `start_within` and replay windows keep "
            "running",
            "lookups": f"{several(behind, 'row is', 'rows are')} not asked about",
        }[lane["what"]]
        what = (
            f"{lane['provider']}/{lane['account'] or '(all accounts)'}: {named([lane['what']])} paused for "
            f"{age(lane['age'])} by {lane['paused_by'] or 'an unknown operator'} "
            f"({lane['reason'] or 'no reason given'}); {waits}"
        )
        level = error if lane["age"] > examination.limits.paused else warning
        account = f" --account {lane['account']}" if lane["account"] else ""
        do = f"Resume it when the reason is gone: idem resume {lane['provider']}{account} --reason …"
        yield level(what, do)
    yield ok("no lane is paused")


async def unserved(examination: Examination) -> Findings:
    """Rows that no daemon with this configuration may send, look up or replay (hazards 8 and 33), by reason."""
    catalogue = examination.catalogue
    found: dict[str, tuple[int, float]] = {}
    for each in await _open(examination):
        why = against(each, catalogue)
        if why is not None:
            rows, oldest = found.get(why, (0, 0.0))
            found[why] = (rows + each["rows"], max(oldest, each["oldest"]))
    for why, (rows, oldest) in sorted(found.items()):
        yield error(
            f"{several(rows, 'open row')}, the oldest {age(oldest)} old: {why}",
            "idem sends and asks nothing for them. Restore the setting with which they were accepted (a second "
            "account or operation may stand beside the new one), or run idem doctor with the idem.toml of the daemons "
            "that serve them",
        )
    yield ok("this configuration serves every open row")


def against(row: RecordDict, catalogue: Catalogue) -> str | None:
    """Why no daemon of this configuration serves a row; None if one does."""
    provider = catalogue.providers.get(row["provider"])
    if provider is None:
        return f"provider {row['provider']} is not configured"
    account = provider.accounts.get(row["account"])
    if account is None:
        return f"account {row['account']} of provider {row['provider']} is not configured"
    if account.origin != row["origin"]:
        return (
            f"they are for {row['origin']}, but account {row['account']} of {row['provider']} is now {account.origin}"
        )
    if row["operation"] not in catalogue.operations:
        return f"operation {row['operation']} is not configured"
    called = catalogue.operations[row["operation"]].at(row["step_name"])
    if called is None:
        if row["step_name"] is None:
            return f"operation {row['operation']} has steps here, and they were accepted as one call"
        return f"operation {row['operation']} has no step {row['step_name']} here"
    if (row["provider"] == LOCAL) != called.is_local_step:
        kind = "a function" if called.is_local_step else "a call"
        return f"step {row['step_name']} of operation {row['operation']} is {kind} here"
    lane = lane_scopes(catalogue).get((row["provider"], row["account"]))
    if row["provider"] != LOCAL and (lane is None or called.call not in lane[1]):
        step = "" if row["step_name"] is None else f"step {row['step_name']} of "
        return f"{step}operation {row['operation']} now uses another account than {row['provider']}/{row['account']}"
    if row["format_version"] not in FORMAT_VERSIONS:
        return f"their requests have format {row['format_version']}, which this version of idem cannot read"
    return None

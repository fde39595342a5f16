"""Lanes without progress: calls refused because of our configuration, calls that are never sent, failed look-ups."""

from collections.abc import Iterator

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination, RecordDict
from idem.cli.doctor.findings import CheckResult, Findings, error, ok, warning
from idem.outbox.calls.breaker import CONFIG_LIMIT
from idem.outbox.operator.ages import SILENT
from idem.outbox.values.plural import several
from idem.outbox.worker.sender import SENT_BY_OTHERS

SAMPLE = 500
"""How many queued rows with an earlier attempt to read."""
MOST = 200_000
"""How many queued rows to search for them, the oldest first."""

# The last report of each row, by the primary key of evidence.
REFUSED = """
SELECT q.provider, q.account, e.outcome, count(*)::integer AS rows, max(e.http_status) AS http_status,
       max(e.details ->> 'note') AS note,
       (count(*) FILTER (WHERE e.details ->> 'note' = %(others)s))::integer AS others,
       min(extract(epoch FROM statement_timestamp() - e.at))::float8 AS newest
  FROM (SELECT o.intent_id, o.provider, o.account
          FROM (SELECT p.* FROM idem.outbox p WHERE p.status = 'pending'
                 ORDER BY p.start_before, p.id LIMIT %(most)s) o
         WHERE o.attempt > 0 LIMIT %(sample)s) q
 CROSS JOIN LATERAL (
       SELECT v.outcome, v.http_status, v.details, v.at FROM idem.evidence v
        WHERE v.intent_id = q.intent_id AND v.kind = 'report' ORDER BY v.id DESC LIMIT 1) e
 WHERE e.outcome LIKE 'not_executed:%%'
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
REACH = (
    "Check the provider's status page, and DNS, firewall and TLS from a worker's machine. Nothing is lost until the "
    "rows are too old"
)
TRANSPORT = "not_executed:transport"
CONFIG = "not_executed:config"
GIVEN_BACK = "not_executed:given_back"


async def refused(examination: Examination) -> Findings:
    """The results of the last calls of rows that are queued again; without any, the lanes whose breaker is open."""
    found = await examination.all(REFUSED, {"sample": SAMPLE, "most": MOST, "others": SENT_BY_OTHERS})
    findings = list(_refused(found)) or [_broken(e) for e in await examination.all(BREAKERS, {"silent": SILENT})]
    for each in findings:
        yield each
    yield ok("no lane is refused because of our configuration, and no breaker is open")


def _refused(found: list[RecordDict]) -> Iterator[CheckResult]:
    for each in found:
        lane, rows = f"{each['provider']}/{each['account']}", each["rows"]
        more = each["rows"] >= SAMPLE
        if each["outcome"] == CONFIG:
            stopped = rows >= CONFIG_LIMIT
            yield error(
                f"lane {lane}: {several(rows, 'queued call was', 'queued calls were', more=more)} refused because "
                f"of our configuration, last {age(each['newest'])} ago (status "
                f"{each['http_status'] or 'none'}{', ' + each['note'] if each['note'] else ''})"
                + ("; workers stop calling after five" if stopped else ""),
                "Correct the credentials, origin or path of this account in idem.toml or its secret, then restart "
                "the workers, which read it at start. The rows wait; nothing is lost until they are too old",
            )
        elif each["outcome"] == GIVEN_BACK and each["others"]:
            yield warning(
                f"lane {lane}: {several(each['others'], 'queued call is', 'queued calls are', more=more)} not "
                "sent, because the credentials or the headers of the account have changed since an earlier send "
                "that may have acted",
                "Restore the old credentials until these calls have ended, or configure account_check, with which "
                "the provider confirms that the new ones belong to the same account. The calls wait until they "
                "are too old",
            )
        elif each["outcome"] == TRANSPORT and rows > 1:
            yield warning(
                f"lane {lane}: {several(rows, 'queued call', more=more)} not sent at all, last "
                f"{age(each['newest'])} ago: the provider cannot be reached",
                REACH,
            )


# The last reports of returned rows do not show this; workers report it with each heartbeat.
BREAKERS = """
SELECT b.lane, count(*)::integer AS workers
  FROM idem.daemons d CROSS JOIN LATERAL jsonb_array_elements_text(d.last_pass -> 'breakers') AS b (lane)
 WHERE d.kind = 'worker' AND d.ended_at IS NULL
   AND d.seen_at > statement_timestamp() - %(silent)s * interval '1 s'
 GROUP BY b.lane ORDER BY b.lane
"""


def _broken(each: RecordDict) -> CheckResult:
    return warning(
        f"lane {each['lane']}: the breaker is open in {several(each['workers'], 'worker')}: calls failed one after "
        "another, so the workers only send a trial call from time to time",
        f"{REACH}. The breaker closes by itself after a successful call",
    )


MISSES = 3
"""Look-ups that proved nothing: they failed repeatedly, or their answers were not accepted as proof."""
# One row of each lane, with what its last evidence says about the look-up.
UNASKED = """
SELECT q.provider, q.account, q.rows, q.intent, e.note, e.http_status
  FROM (SELECT o.provider, o.account, count(*)::integer AS rows,
               (array_agg(o.intent_id ORDER BY o.failures DESC, o.intent_id))[1] AS intent
          FROM (SELECT u.provider, u.account, u.failures, u.intent_id FROM idem.outbox u
                 WHERE u.failures >= %(failures)s AND u.failures > 0 AND u.status IN ('unknown', 'awaiting')
                    OR u.lookups - u.absences >= %(failures)s AND u.status = 'unknown' LIMIT 10000) o
         GROUP BY 1, 2) q
  LEFT JOIN LATERAL (
       SELECT v.details ->> 'note' AS note, v.http_status FROM idem.evidence v
        WHERE v.intent_id = q.intent AND v.outcome = 'could_not_ask' ORDER BY v.id DESC LIMIT 1) e ON true
 ORDER BY 1, 2
"""


async def unasked(examination: Examination) -> Findings:
    """Unknown rows that idem cannot look up at the provider."""
    for each in await examination.all(UNASKED, {"failures": MISSES}):
        yield warning(
            f"lane {each['provider']}/{each['account']}: look-ups of {several(each['rows'], 'row')} failed {MISSES} "
            "times or more"
            + (f"; last: {each['note']}" if each["note"] else "")
            + (f" (HTTP {each['http_status']})" if each["http_status"] else ""),
            f"`idem intents show {each['intent']}` shows each answer. Is the provider down, does the credential lack "
            "the right to read, or does it belong to another account? Fix that; the reconciler then continues by "
            "itself",
        )
    yield ok("the providers answer look-ups of unknown rows")

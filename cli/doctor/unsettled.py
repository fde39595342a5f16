"""What waits: stored proofs, open dead letters, and keys that nothing will ever settle."""

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.domain.states import Reason
from idem.outbox.values.durations import text
from idem.outbox.values.plural import several

MOST = 10_000
PROOFS = """
SELECT (SELECT count(*) FROM (SELECT FROM idem.proofs LIMIT %(most)s) AS p)::integer AS rows,
       extract(epoch FROM statement_timestamp() - min(p.stored_at))::float8 AS oldest FROM idem.proofs p
"""


async def proofs(examination: Examination) -> Findings:
    """Proofs that arrived while a claim was live or the row was locked, and that are not applied yet."""
    found, limit = await examination.one(PROOFS, {"most": MOST}), examination.limits.proof
    if found["oldest"] is not None and found["oldest"] > limit:
        yield error(
            f"{several(found['rows'], 'stored proof', more=found['rows'] >= MOST)}, the oldest of them not "
            f"applied for {age(found['oldest'])}, more than {text(limit)}: idem knows what happened, but clients "
            "do not get the answer",
            "The reconciler applies them: is it running, with the operation in its idem.toml? See its log",
        )
    yield ok(f"{several(found['rows'], 'stored proof')}, none older than {text(limit)}")


LETTERS = """
SELECT d.reason, count(*)::integer AS rows,
       max(extract(epoch FROM statement_timestamp() - d.created_at))::float8 AS oldest
  FROM (SELECT l.reason, l.created_at FROM idem.dead_letters l WHERE l.resolved_at IS NULL
         ORDER BY l.created_at LIMIT %(most)s) d
 GROUP BY d.reason ORDER BY d.reason
"""
URGENT = (Reason.POSSIBLE_DUPLICATE, Reason.CONFLICT)


async def dead_letters(examination: Examination) -> Findings:
    """Open dead letters, by reason."""
    limit = examination.limits.dead_letter
    for each in await examination.all(LETTERS, {"most": MOST}):
        entries = several(each["rows"], "open dead letter", more=each["rows"] >= MOST)
        what = f"{entries} `{each['reason']}`, the oldest {age(each['oldest'])} old"
        do = f"idem dlq list --reason-code {each['reason']}; docs/on-call.md explains each reason"
        if each["reason"] in URGENT:
            yield error(f"{what}: a customer may have paid twice", do)
        elif each["oldest"] > limit:
            yield error(f"{what}, more than {text(limit)}", do)
        else:
            yield warning(what, do)
    yield ok("no dead letter is open")


NEWEST = 20_000
"""How many keys to read, the newest first: reading all would scan the whole table to find nothing."""
# MATERIALIZED, so that PostgreSQL chooses the newest keys before it looks for their rows.
ORPHANS = """
WITH newest AS MATERIALIZED (
    SELECT k.intent_id, k.state, k.operation, k.created_at FROM idem.idempotency_keys k
     ORDER BY k.intent_id DESC LIMIT %(newest)s
)
SELECT n.intent_id, n.state, n.operation FROM newest n
 WHERE n.state IN ('in_progress', 'unknown', 'failed_retryable')
   AND NOT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = n.intent_id)
 ORDER BY n.intent_id LIMIT 100
"""


async def orphans(examination: Examination) -> Findings:
    """Keys that are not final and have no open row, which must not happen (hazard 67)."""
    found = await examination.all(ORPHANS, {"newest": NEWEST})
    if found:
        named = ", ".join(f"{each['intent_id']} ({each['state']})" for each in found[:5])
        yield error(
            f"{several(len(found), 'key', more=len(found) >= 100)} not final without an open row, so idem will "
            f"never settle {'it' if len(found) == 1 else 'them'}: {named}",
            "Another program wrote to the tables (was a trigger disabled?), or it is a bug in idem: keep the "
            "rows, read `idem intents show ID`, and report it",
        )
    yield ok(f"every key that is not final has an open row (of the newest {NEWEST})")

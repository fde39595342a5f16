"""Webhooks: when the last event of each account with a configured webhook arrived."""

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.config import Configuration
from idem.outbox.values.durations import text
from idem.outbox.values.plural import several

NEWEST = 10_000
"""How many events to read, the newest first."""
RECEIVED = """
SELECT w.provider, w.account, count(*)::integer AS events,
       min(extract(epoch FROM statement_timestamp() - w.received_at))::float8 AS last
  FROM (SELECT e.provider, e.account, e.received_at FROM idem.webhook_events e ORDER BY e.id DESC LIMIT %(newest)s) w
 GROUP BY 1, 2 ORDER BY 1, 2
"""


async def webhooks(examination: Examination) -> Findings:
    """Find the last event of each account; a configured webhook without any event is a warning."""
    found = await examination.all(RECEIVED, {"newest": NEWEST})
    last = {(each["provider"], each["account"]): each["last"] for each in found}
    for provider, account in configured(examination.configuration):
        if (provider, account) not in last:
            yield warning(
                f"{provider}/{account} has a webhook configured, but none of the last {NEWEST} events came from it",
                "Does the provider know our URL, and can it reach us? The log shows refused events (401): compare the "
                "secret",
            )
    if last:
        said = ", ".join(f"{provider}/{account} {age(seconds)} ago" for (provider, account), seconds in last.items())
        yield ok(f"last received: {said}")


def configured(found: Configuration | None) -> list[tuple[str, str]]:
    """The accounts that should send webhooks: those with a signing secret."""
    if found is None:
        return []
    return sorted({(name, account) for name, each in found.provider_settings.items() for account, *_ in each.signing()})


WAITING = """
SELECT (SELECT count(*) FROM (SELECT FROM idem.webhook_events l
                               WHERE l.retry_at < statement_timestamp() AND l.fate <> 'hint'
                               LIMIT 10000) AS w)::integer AS rows,
       extract(epoch FROM statement_timestamp() - min(e.retry_at))::float8 AS overdue
  FROM idem.webhook_events e WHERE e.retry_at IS NOT NULL AND e.fate <> 'hint'
"""
HINTS = """
SELECT w.provider, w.account, count(*)::integer AS rows,
       extract(epoch FROM statement_timestamp() - min(w.received_at))::float8 AS age
  FROM (SELECT e.provider, e.account, e.received_at FROM idem.webhook_events e
         WHERE e.fate = 'hint' LIMIT 10000) AS w
 GROUP BY 1, 2 ORDER BY 1, 2
"""


async def waiting(examination: Examination) -> Findings:
    """Find events that idem could not apply on arrival and has not retried since they were due, and events that it
    should have confirmed with the provider by now.
    """
    found, limit = await examination.one(WAITING), examination.limits.proof
    for each in await examination.all(HINTS):
        if each["age"] > limit:
            yield error(
                f"{several(each['rows'], 'webhook', more=each['rows'] >= 10_000)} of "
                f"{each['provider']}/{each['account']} to confirm, the oldest for {age(each['age'])}, more than "
                f"{text(limit)}: idem does not send the calls of these events before",
                "The reconciler asks the provider: is it running, with an operation of this account in its idem.toml? "
                "Does the provider answer look-ups, and are they not paused? See the reconciler's log",
            )
    if found["overdue"] is not None and found["overdue"] > limit:
        yield error(
            f"{several(found['rows'], 'webhook', more=found['rows'] >= 10_000)} to apply, the oldest due for "
            f"{age(found['overdue'])}, more than {text(limit)}",
            "The reconciler applies them: is it running, with this provider in its idem.toml? See its log",
        )

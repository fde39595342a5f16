"""Webhooks: when the last one came in from each account that has one configured."""

from __future__ import annotations

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, error, ok, several, warning
from idem.cli.output import age
from idem.outbox.config import Configuration
from idem.outbox.values.durations import text

NEWEST = 10_000
"""Events that are looked at, the newest first."""
RECEIVED = """
SELECT w.provider, w.account, count(*)::integer AS events,
       min(extract(epoch FROM statement_timestamp() - w.received_at))::float8 AS last
  FROM (SELECT e.provider, e.account, e.received_at FROM idem.webhook_events e ORDER BY e.id DESC LIMIT %(newest)s) w
 GROUP BY 1, 2 ORDER BY 1, 2
"""


async def webhooks(examination: Examination) -> list[CheckResult]:
    """The last event of each account; one whose webhook is configured and never came is a warning."""
    found = await examination.all(RECEIVED, {"newest": NEWEST})
    last = {(each["provider"], each["account"]): each["last"] for each in found}
    findings = [
        warning(
            "webhooks",
            f"no webhook of {provider}/{account} is among the last {NEWEST} that came, though one is configured",
            "Does the provider know our URL, and reach us? Refused ones (401) are in the log: compare the secret",
        )
        for provider, account in configured(examination.configuration)
        if (provider, account) not in last
    ]
    if findings or not last:
        return findings
    said = ", ".join(f"{provider}/{account} {age(seconds)} ago" for (provider, account), seconds in last.items())
    return [ok("webhooks", f"last received: {said}")]


def configured(found: Configuration | None) -> list[tuple[str, str]]:
    """The accounts from which webhooks are expected: those with a secret to verify them by."""
    if found is None:
        return []
    return sorted({(name, account) for name, each in found.provider_settings.items() for account, *_ in each.signing()})


WAITING = """
SELECT (SELECT count(*) FROM (SELECT FROM idem.webhook_events l
                               WHERE l.retry_at < statement_timestamp() AND l.verdict <> 'hint'
                               LIMIT 10000) AS w)::integer AS rows,
       extract(epoch FROM statement_timestamp() - min(e.retry_at))::float8 AS overdue
  FROM idem.webhook_events e WHERE e.retry_at IS NOT NULL AND e.verdict <> 'hint'
"""
HINTS = """
SELECT w.provider, w.account, count(*)::integer AS rows,
       extract(epoch FROM statement_timestamp() - min(w.received_at))::float8 AS age
  FROM (SELECT e.provider, e.account, e.received_at FROM idem.webhook_events e
         WHERE e.verdict = 'hint' LIMIT 10000) AS w
 GROUP BY 1, 2 ORDER BY 1, 2
"""


async def waiting(examination: Examination) -> list[CheckResult]:
    """Events that could not be applied when they came and that nobody has tried again since they were due, and events
    that the provider should have been asked about by now."""
    found, limit = await examination.one(WAITING), examination.limits.proof
    hints = [
        error(
            "webhooks",
            f"{several(each['rows'], 'webhook', more=each['rows'] >= 10_000)} of {each['provider']}/{each['account']} "
            f"to be confirmed, the oldest for {age(each['age'])}, more than {text(limit)}: the calls that they are "
            "about are not sent until then",
            "The reconciler asks the provider: does it run, with an operation of this account in its idem.toml? Does "
            "the provider answer look-ups, and are they not paused? Its log says more",
        )
        for each in await examination.all(HINTS)
        if each["age"] > limit
    ]
    if found["overdue"] is None or found["overdue"] <= limit:
        return hints
    return [
        *hints,
        error(
            "webhooks",
            f"{several(found['rows'], 'webhook', more=found['rows'] >= 10_000)} to be applied, the oldest of them due "
            f"for {age(found['overdue'])}, more than {text(limit)}",
            "The reconciler applies them: is it running, with this provider in its idem.toml? Its log says more",
        ),
    ]

"""Handlers of settled intents: whether a worker runs each, and how far behind it is."""

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.operator.ages import HANDLERS
from idem.outbox.values.durations import text
from idem.outbox.values.plural import several


async def handlers(examination: Examination) -> Findings:
    """A worker must run each handler that has events, and the handler must not be far behind."""
    found = await examination.all(HANDLERS)
    limit = examination.limits.handler
    for each in found:
        name, waits = each["handler"], several(each["events"], "event waits", "events wait")
        if each["seen"] > limit:
            level = error if each["events"] else warning
            yield level(
                f"no worker has run handler {name} for {age(each['seen'])}; {waits} for it",
                "Start workers with the --app that defines it. If it was renamed, give it its old name; if it is "
                f"gone for good: SELECT idem.forget_handler('{name}')",
            )
        elif each["oldest_going"] > limit:
            yield error(
                f"handler {name} is behind: {waits}, the oldest for {age(each['oldest_going'])}, more than "
                f"{text(limit)}",
                "See the worker's log for `handler_failed` and `handler_not_started`; is it slow, or does it hang?",
            )
        elif each["failing"]:
            yield warning(
                f"handler {name} fails and is retried: {several(each['failing'], 'event')}",
                "See `handler_failed` in the worker's log. After the last attempt it becomes a dead letter",
            )
    waiting = sum(each["events"] for each in found)
    yield ok(f"{several(len(found), 'handler')}, {several(waiting, 'event waits', 'events wait')}")

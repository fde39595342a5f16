"""Unmatched events on the command line: tried again many at once, and explained."""

from fix_webhooks import Hooks, event
from webhooks.unmatched import Change, given_up, letters, like_ours

from idem.outbox.domain.contract import EventRule

WHY = ("--reason", "pointer mended", "--yes")


async def test_unmatched_events_are_tried_again_many_at_once(hooks: Hooks) -> None:
    for number in range(3):
        assert await hooks.fate(event(like_ours(), reference=f"pay_{number}"), f"evt_{number}") == "unmatched"
    await given_up(hooks)
    await hooks.desk.held("k")
    await hooks.spine.execute("UPDATE idem.webhook_events SET retry_at = now() + interval '1 day'")
    many = ("dlq", "redrive", "--reason-code", "unmatched_webhook", *WHY)
    await hooks.desk.cli(*many, code=1, err="--expect 3")
    done = await hooks.desk.cli(*many, "--expect", 3, "--json", code=0)
    assert {each["dead_letter"] for each in done.data["redriven"]} == {str(each["id"]) for each in await letters(hooks)}
    due = await hooks.spine.all("SELECT 1 FROM idem.webhook_events WHERE retry_at <= now()")
    assert len(due) == 3
    assert {each["details"]["tried_why"] for each in await letters(hooks)} == {"pointer mended"}


async def test_an_entry_says_why_an_event_was_taken_for_ours(hooks: Hooks, changed: Change) -> None:
    """A key of another form is no key of ours: it is the account."""
    await changed(EventRule(horizon=3600), dedicated=True)
    await hooks.fate(event("0193b6a0-0000-4000-8000-000000000000", reference="pay_9"))
    await given_up(hooks, 0.1)
    assert [each["details"]["ours"] for each in await letters(hooks)] == ["the account belongs to this deployment"]

"""What a reader and the person on call have found: pages, examples and commands that did not do as they said."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_desk import Desk
from fix_webhooks import Hooks, event, hooking
from typer.main import get_command
from webhooks.test_unmatched import Change, changed, grow_old, letters, like_ours  # noqa: F401

from idem.cli.main import app as main
from idem.outbox.config import load
from idem.outbox.domain.contract import EventRule, Response
from idem.outbox.domain.outcomes import Pending
from idem.outbox.providers.http import HttpProvider

ROOT = Path(__file__).parents[2]
COMMANDS = get_command(main)
WHY = ("--reason", "pointer mended", "--yes")


@pytest.fixture
async def hooks(desk: Desk) -> AsyncIterator[Hooks]:
    async with hooking(desk) as found:
        yield found


def unknown_options(file: Path) -> Iterator[str]:
    """Options in the commands that a file names which these commands have not."""
    for call, words in re.findall(r"\b(idem ((?:[a-z-]+ ?){1,3})[^`\n|;\"]*)", file.read_text()):
        command: Any = COMMANDS
        for word in words.split():
            if word not in getattr(command, "commands", ()):
                break
            command = command.commands[word]
        if hasattr(command, "commands"):
            continue
        known = {"--help"}.union(*((*each.opts, *each.secondary_opts) for each in command.params))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", call):
            if option not in known:
                yield f"{file.relative_to(ROOT)}: {option} in {call}"


@pytest.mark.parametrize(
    "place", ["cli", "deploy", "docs", "examples", "migrations", "outbox", "reconciler", "testing"]
)
def test_no_command_is_named_with_an_option_that_it_has_not(place: str) -> None:
    """The doctor said `dlq list --reason`, the examples `db upgrade --environment`."""
    files = [each for each in (ROOT / place).rglob("*") if each.suffix in (".md", ".py", ".toml", ".yaml", ".service")]
    assert files and [found for file in files for found in unknown_options(file)] == []


def test_the_bank_of_the_page_about_conformance_looks_at_credentials() -> None:
    """Two of the rules failed there: the bank serves whoever has none unless it is told."""
    page = (ROOT / "docs" / "adopt" / "provider-conformance.md").read_text()
    (settings,) = re.findall(r"echo '(.*)' > bank\.json\nidem bank run .*--settings bank\.json", page)
    assert json.loads(settings) == {"require_auth": True}


@pytest.mark.parametrize("name", ["idem.toml", "django_orders/idem.toml"])
def test_the_examples_wait_for_a_payment_that_needs_its_customer(name: str) -> None:
    """No rule was about it, so that it became unknown and at last a dead letter."""
    provider = load(ROOT / "examples" / name, {"BANK_TOKEN": "t"}).providers["bank"]
    assert isinstance(provider, HttpProvider)
    body = b'{"id": "pay_1", "status": "requires_action"}'
    outcome, _ = provider.classify(Response(201, {"content-type": "application/json"}, body))
    assert isinstance(outcome, Pending)


async def test_unmatched_events_are_tried_again_many_at_once(hooks: Hooks) -> None:
    for number in range(3):
        assert await hooks.verdict(event(like_ours(), reference=f"pay_{number}"), f"evt_{number}") == "unmatched"
    await grow_old(hooks)
    await hooks.spine.reconcile()
    await hooks.desk.held("k")
    async with hooks.spine.database.connection() as connection:
        await connection.execute("UPDATE idem.webhook_events SET retry_at = now() + interval '1 day'")
    many = ("dlq", "redrive", "--reason-code", "unmatched_webhook", *WHY)
    refused = await hooks.desk.cli(*many)
    assert refused.code == 1 and "--expect 3" in refused.err, refused.err
    done = await hooks.desk.cli(*many, "--expect", 3, "--json")
    assert done.code == 0, done.err
    assert {each["dead_letter"] for each in done.data["redriven"]} == {str(each["id"]) for each in await letters(hooks)}
    due = await hooks.spine.all("SELECT 1 FROM idem.webhook_events WHERE retry_at <= now()")
    assert len(due) == 3
    assert {each["details"]["tried_why"] for each in await letters(hooks)} == {"pointer mended"}


async def test_an_entry_says_why_an_event_was_taken_for_ours(hooks: Hooks, changed: Change) -> None:  # noqa: F811
    """A key of another form is no key of ours: it is the account."""
    await changed(EventRule(horizon=3600), exclusive=True)
    await hooks.verdict(event("0193b6a0-0000-4000-8000-000000000000", reference="pay_9"))
    await grow_old(hooks, 0.1)
    await hooks.spine.reconcile()
    assert [each["details"]["ours"] for each in await letters(hooks)] == ["the account is ours"]

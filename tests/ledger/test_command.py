"""`idem reconcile --since`: what it prints, and its exit codes; alone, and as a process beside daemons."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fix_desk import Desk, Result
from ledger.books import entries, post

from idem.outcomes import Succeeded

LIST = """
[providers.keyed.list]
path = "/payments?limit=50&since={idem.since}&until={idem.until}"
items = "/data"
key = "/idempotency_key"
created = "/created"
page = { style = "after_id", parameter = "after", more = "/has_more" }

[providers.keyed.deployment_tag]
at = "/metadata/idem_deployment"
"""


@pytest.fixture
def listed(desk: Desk, configuration: Path) -> Desk:
    """A desk whose provider can be listed, and shows everything at once."""
    text = configuration.read_text()
    assert 'horizon = "10s"' in text
    configuration.write_text(text.replace('horizon = "10s"', 'horizon = "0s"') + LIST)
    return desk


@asynccontextmanager
async def process(desk: Desk, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process of its own; killed if it still runs at the end."""
    command = (sys.executable, "-m", "idem.cli.main", *arguments)
    pipe = asyncio.subprocess.PIPE
    environment = os.environ | desk.environment
    running = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.communicate()


async def idem(desk: Desk, *arguments: str, code: int = 0) -> Result:
    """What it prints in this process; it exits with this code."""
    return await desk.cli(*arguments, code=code)


def lane(result: Result) -> dict[str, Any]:
    (found,) = json.loads(result.out)["ledger"]["lanes"]
    assert isinstance(found, dict)
    return found


async def test_clean_is_0_and_a_discrepancy_3(listed: Desk) -> None:
    await listed.pending("k1")
    await listed.spine.work()
    clean = await idem(listed, "reconcile", "--since", "24h")
    assert "clean: both sides agree" in clean.err
    lost = await post(listed.spine, metadata={"idem_deployment": "test"})
    foreign = await post(listed.spine, metadata={"idem_deployment": "other"})
    async with process(listed, "reconcile", "--since", "24h", "--json") as running:
        out, err = await asyncio.wait_for(running.communicate(), 60)
    assert running.returncode == 3, err.decode()
    found = Result(3, out.decode(), err.decode())
    shown = lane(found)
    numbers = {name: shown[name] for name in ("objects", "matched", "theirs_only", "ours_only", "foreign", "open")}
    assert numbers == {"objects": 3, "matched": 1, "theirs_only": 1, "ours_only": 0, "foreign": 1, "open": 0}
    (each,) = shown["discrepancies"]
    assert (each["reference"], each["opened_now"], each["decided"]) == (lost, True, None)
    document = json.loads(found.out)["ledger"]
    assert (document["clean"], document["complete"], document["dry_run"]) == (False, True, False)
    again = await idem(listed, "reconcile", "--since", "24h", code=3)
    assert lost in again.out and foreign not in again.out
    (entry,) = await entries(listed.spine)
    assert str(entry["id"]) in again.out
    assert "idem dlq list --reason-code discrepancy" in again.err


async def test_what_could_not_be_completed_is_4_and_discrepancies_come_first(listed: Desk) -> None:
    spine = listed.spine
    await listed.pending("k1")
    await spine.work()
    spine.bank.script({"method": "GET"}, ["503"] * 3)
    broken = await idem(listed, "reconcile", "--since", "24h", code=4)
    assert "NOT COMPLETE" in broken.out
    assert "clean" not in broken.err
    assert await entries(spine) == []
    for _ in range(60):
        await post(spine, metadata={"idem_deployment": "test"})
    spine.bank.script({"method": "GET"}, ["none", *["503"] * 3])
    both = await idem(listed, "reconcile", "--since", "24h", "--json", code=3)
    assert json.loads(both.out)["ledger"]["complete"] is False


async def test_it_settles_first_and_a_dry_run_does_not(listed: Desk) -> None:
    await listed.pending("k1")
    await listed.spine.work(faults=["act_then_drop"])
    dry = await idem(listed, "reconcile", "--since", "24h", "--dry-run", "--json")
    assert lane(dry)["settled_now"] == 1
    assert lane(dry)["settled"][0]["became"] == "not_written"
    assert len(json.loads(dry.out)["left"]) == 1
    real = await idem(listed, "reconcile", "--since", "24h", "--json")
    assert json.loads(real.out)["left"] == []
    assert lane(real)["matched"] == 1, "it was settled before the walk, as due"


async def test_beside_running_daemons_it_finds_nothing(listed: Desk) -> None:
    spine = listed.spine
    spine.bank.script({"method": "POST"}, ["act_then_drop", "none", "act_then_500"] * 5)
    async with process(listed, "worker", "run"), process(listed, "reconciler", "run"):
        for number in range(3):
            await asyncio.gather(*(listed.pending(f"k{number}-{each}") for each in range(8)))
            await idem(listed, "reconcile", "--since", "1h", "--json")
    assert await entries(spine) == []


async def test_a_person_sees_both_sides_and_closes_it(listed: Desk) -> None:
    intent = await listed.pending("k1")
    await listed.spine.work(faults=["drop_before_acting"])
    await listed.act("resolve_completed", intent, outcome=Succeeded("pay_nowhere", "succeeded", {"amount": 100}))
    await idem(listed, "reconcile", "--since", "24h", code=3)
    (entry,) = await entries(listed.spine)
    shown = await idem(listed, "dlq", "show", str(entry["id"]))
    for expected in ("pay_nowhere", "amount", "next: look for it", "resolve --as closed", str(intent)):
        assert expected in shown.out
    await idem(
        listed, "dlq", "resolve", str(entry["id"]), "--as", "closed", "--reason", "the bank has lost it", "--yes"
    )
    assert "decided: closed" in (await idem(listed, "reconcile", "--since", "24h")).out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--dry-run"], 2, "it needs --since"),
        (["--dry-run", "--now", "--since", "1h"], 2, "it settles nothing"),
        (["--since", "2099-01-01"], 1, "is in the future"),
        (["--since", "4000d"], 1, "the ledger keeps 400d"),
        (["--since", "yesterday"], 2, "is not a time"),
    ],
)
async def test_mistakes(listed: Desk, arguments: list[str], code: int, says: str) -> None:
    result = await listed.cli("reconcile", *arguments)
    assert (result.code, "Traceback" in result.err) == (code, False)
    assert says in " ".join(result.err.split())


async def test_a_provider_that_cannot_be_listed_is_named(desk: Desk) -> None:
    await desk.cli("reconcile", "--since", "1h", code=4, out="cannot be listed", err="NOT COMPARED")


async def test_what_compares_nothing_is_not_clean(desk: Desk) -> None:
    """No provider of this configuration has a list: whoever runs it from cron hears so."""
    result = await idem(desk, "reconcile", "--since", "24h", "--json", code=4)
    ledger = json.loads(result.out)["ledger"]
    assert (ledger["clean"], ledger["complete"], ledger["compared"]) == (False, True, False)
    assert "NOT COMPARED" in (await idem(desk, "reconcile", "--since", "24h", code=4)).err

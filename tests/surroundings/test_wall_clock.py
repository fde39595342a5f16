"""The wall clock of this machine decides nothing: it may step back and forward while idem works."""

import ast
import asyncio
import signal
import time
from collections.abc import Iterator
from uuid import UUID

import pytest
from fix_desk import Desk
from fix_processes import Clock, started
from fix_source import trees
from fix_waiting import until

from idem.outbox.calls import known_object
from idem.outcomes import Ambiguous
from idem.reconciler import due

YEAR = 366 * 86400.0

READS = {
    "cli/bench/accepting.py": "when a bench has accepted, to compare with what the application and the database say",
    "cli/bench/application.py": "when a bench's call begins",
    "cli/bench/installation.py": "from when a bench's certificate is valid",
    "cli/bench/stage.py": "how far a bench's clock is from its database's",
    "cli/demo/clients.py": "what a demonstration writes down",
    "cli/demo/installation.py": "the day, in the sample configuration that is written",
    "cli/group/sample.py": "the day, in the sample configuration that is written",
    "cli/demo/workspace.py": "the name of a demonstration's database",
    "cli/demo/stage.py": "how far a demonstration's clock is from its database's",
    "cli/doctor/clocks.py": "how far this machine's clock is from the database's",
    "cli/doctor/contracts.py": "the day, for a warning about facts that were checked long ago",
    "cli/group/metrics_folder.py": "the age of a folder of metrics whose supervisor was killed",
    "cli/recover.py": "a time that is shown, made of the database's seconds",
    "cli/status.py": "shown beside what is shown",
    "outbox/calls/request_head.py": "a signature's time, which the provider compares with its own clock",
    "outbox/config/consistency.py": "the day, for a warning about facts that were checked long ago",
    "outbox/domain/provider.py": "a question of a test, or of a program without a database",
    "outbox/providers/errors.py": "a Retry-After with a date, from a provider that sends no Date; it is capped",
    "reconciler/webhooks/endpoint.py": "a delivery's age, by its sender's clock",
    "reconciler/webhooks/embedded.py": "a delivery's age, by its sender's clock",
}
"""Where a wall clock is read outside of the test kit, and what for: nothing else may."""

WALL = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime", "datetime.now", "datetime.utcnow",
        "datetime.today", "date.today", "datetime.datetime.now", "datetime.date.today"}  # fmt: skip


def reading(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in WALL:
            yield ast.unparse(node)


def test_every_place_that_reads_a_wall_clock_is_known() -> None:
    found = trees("outbox", "reconciler", "sweeper", "cli", "idem", holding=r"\b(time|datetime|date)\.")
    assert {path for path, tree in found if list(reading(tree))} == set(READS)


@pytest.mark.quick
@pytest.mark.process
@pytest.mark.parametrize("daemon", ["sweeper", "reconciler"])
async def test_ib_180_passes_go_on_over_a_step(desk: Desk, stepped: Clock, daemon: str) -> None:
    """The intervals are the monotonic clock's: a lease that runs out is swept, an unknown is asked about."""

    async def passes_go_on() -> None:
        before = await desk.spine.one("SELECT statement_timestamp() AS at")
        await until(
            lambda: desk.spine.all("SELECT FROM idem.daemons WHERE last_pass_at > %(at)s", at=before["at"]),
            "a pass after the step",
        )

    async with started(daemon, "run", env=desk.environment | stepped.environment) as process:
        for number, step in enumerate((0.0, -120.0, -10 * YEAR, 3 * YEAR, 0.0)):
            stepped.step(step)
            intent = await (desk.live(f"k{number}") if daemon == "sweeper" else desk.unknown(f"k{number}", quiet=False))
            await desk.spine.advance(60)
            await until(lambda: _seen(desk, daemon, intent), f"the work after a step of {step} s")  # noqa: B023
            if step in (-10 * YEAR, 0.0) and number:
                await passes_go_on()  # which is put on record every few seconds
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 40) == 0


async def _seen(desk: Desk, daemon: str, intent: UUID) -> bool:
    row = await desk.spine.row_if_any(intent)
    if daemon == "sweeper":
        return row is not None and row["status"] == "unknown"
    return row is None or row["lookups"] > 0 or row["failures"] > 0


async def test_a_question_has_the_database_clock(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look for events that the provider has forgotten proves nothing, whatever this machine holds the time for."""
    intent = await desk.after("k1", Ambiguous())
    await desk.completed("k2")
    await desk.spine.advance(3600)
    at = (await desk.spine.one("SELECT extract(epoch FROM statement_timestamp())::float8 AS at"))["at"]
    monkeypatch.setattr(time, "time", lambda: at - YEAR)
    from idem.outbox.domain.lane_scopes import lane_scopes

    lane, _ = lane_scopes(desk.spine.catalogue)["keyed", "keyed"]
    contract = desk.spine.catalogue.providers["keyed"].contract
    async with desk.spine.database.connection() as connection:
        (claim,) = await due.claim_due(connection, lane, contract, token=intent, holder="me", lease=30, limit=1, now=0)
        newest = await known_object.newest(connection, "keyed", "keyed", 10)
    assert newest is not None
    for question in (claim.question, newest):
        assert question.asked_at == pytest.approx(at, abs=600)

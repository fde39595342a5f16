"""A reconciler that is told to stop ends between two claims of events, however many wait."""

import asyncio
from typing import Any

import pytest
from fix_settings import with_constants
from fix_webhooks import Hooks, event

from idem.outbox.config.settings import ReconcilerSettings
from idem.reconciler.daemon import Reconciler
from idem.reconciler.webhooks import retries

BATCH = 5
DUE = "UPDATE idem.webhook_events SET retry_at = statement_timestamp()"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [12, 36])
async def test_it_ends_after_the_events_that_it_has_taken(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Young events become due again while thousands are looked at: without this the pass may never end."""
    for n in range(number):
        assert await hooks.fate(event(None), f"evt_{n}") == "unmatched"
    await hooks.spine.execute(DUE)
    stop, tried = asyncio.Event(), 0
    real = retries._try

    async def counted(*given: Any) -> int:
        nonlocal tried
        tried += 1
        stop.set()
        return await real(*given)

    monkeypatch.setattr(retries, "_try", counted)
    one = Reconciler(
        hooks.spine.database,
        hooks.spine.catalogue,
        with_constants(ReconcilerSettings(lease=30), batch=BATCH),
        slots=4,
        margin=1,
    )
    await one.run(stop)
    assert tried == BATCH

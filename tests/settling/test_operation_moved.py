"""An operation is pointed to another provider while its rows are open: none waits for a worker that does not exist."""

from typing import Any

import pytest
from fix_spine import Spine

from idem.errors import ConfigError
from idem.outbox.operator import actions
from idem.reconciler import stored


def point(spine: Spine, name: str, provider: str) -> None:
    spine.operate(name, provider=provider, account=provider)


async def at_rest(spine: Spine) -> Any:
    intent = await spine.sent(amount=-1)
    row = await spine.row(intent)
    assert row is not None and row["status"] == "held", row
    return intent


async def test_an_operator_hears_that_no_worker_would_send_it(spine: Spine) -> None:
    intent = await at_rest(spine)
    point(spine, "pay.keyed", "keyless")
    async with spine.database.connection() as connection:
        with pytest.raises(ConfigError, match="made for provider keyed, but the operation now uses keyless"):
            await actions.redrive(connection, spine.catalogue, intent, reason="again", by="anna", version=2)
    await spine.expect(intent, status="held")


async def test_an_automatic_redrive_waits_for_a_configuration_that_sends_it(spine: Spine) -> None:
    intent = await at_rest(spine)
    before = spine.catalogue
    await spine.all(
        "UPDATE idem.outbox SET redrive_at = now() - interval '1 s' WHERE intent_id = %(i)s RETURNING id",
        i=intent,
    )
    point(spine, "pay.keyed", "keyless")
    async with spine.database.connection() as connection:
        assert await stored.redrive(connection, spine.catalogue, limit=10) == 0
        assert await stored.redrive(connection, before, limit=10) == 1

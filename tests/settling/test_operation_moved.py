"""An operation is pointed to another provider while its rows are open: none waits for a worker that does not exist."""

from typing import Any

import pytest
from fix_spine import Spine

from idem.errors import ConfigError
from idem.reconciler import stored


async def at_rest(spine: Spine) -> Any:
    intent = await spine.sent(amount=-1)
    await spine.expect(intent, status="held")
    return intent


async def test_an_operator_hears_that_no_worker_would_send_it(spine: Spine) -> None:
    intent = await at_rest(spine)
    spine.operate("pay.keyed", provider="keyless", account="keyless")
    with pytest.raises(ConfigError, match="made for provider keyed, but the operation now uses keyless"):
        await spine.act("redrive", intent)
    await spine.expect(intent, status="held")


async def test_an_automatic_redrive_waits_for_a_configuration_that_sends_it(spine: Spine) -> None:
    intent = await at_rest(spine)
    before = spine.catalogue
    await spine.execute("UPDATE idem.outbox SET redrive_at = now() - interval '1 s' WHERE intent_id = %(i)s", i=intent)
    spine.operate("pay.keyed", provider="keyless", account="keyless")
    assert await spine.run(stored.redrive, spine.catalogue, limit=10) == 0
    assert await spine.run(stored.redrive, before, limit=10) == 1

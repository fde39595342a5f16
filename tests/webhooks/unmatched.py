"""Events that match no call of ours."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from fix_webhooks import Hooks

from idem.outbox.domain.contract import EventRule
from idem.outbox.providers.deployment_tag import DeploymentTag

DAYS = 86400.0


USUAL = EventRule()


Change = Callable[..., Any]


@pytest.fixture
def changed(hooks: Hooks) -> Change:
    """The endpoint again, with another contract of `keyed`."""

    async def change(rule: EventRule = USUAL, *, dedicated: bool = False, tag: DeploymentTag | None = None) -> None:
        keyed = hooks.spine.provider("keyed")
        contract = replace(keyed.contract, event_rule=rule, dedicated_account=dedicated, deployment="test")
        await hooks.change(contract=contract, tag=tag)

    return change


async def grow_old(hooks: Hooks, days: float = 1.1) -> None:
    """Let the events be so old, and due."""
    await hooks.spine.execute(
        "UPDATE idem.webhook_events SET received_at = now() - make_interval(secs => %s),"
        " retry_at = CASE WHEN retry_at IS NOT NULL THEN now() END", (days * DAYS,),
    )  # fmt: skip


async def given_up(hooks: Hooks, days: float = 1.1) -> None:
    """The events are so old when the reconciler comes."""
    await grow_old(hooks, days)
    await hooks.spine.reconcile()


async def letters(hooks: Hooks) -> list[dict[str, Any]]:
    return await hooks.spine.all("SELECT * FROM idem.dead_letters WHERE reason = 'unmatched_webhook' ORDER BY id")


def like_ours() -> UUID:
    """A key of the form of ours that nobody has."""
    return UUID(int=uuid4().int & ~(0xF << 76) | 8 << 76)

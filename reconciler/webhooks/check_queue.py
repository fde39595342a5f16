"""Deliveries are checked beside the loop where that costs more than a moment: their sender is not known.

An address has one turn at a time, so a sender who floods one does not keep the others waiting for long. What waits is
bounded by `WebhookSettings.max_unverified`.
"""

from collections.abc import Callable
from typing import Final

from idem.outbox.api.large_bodies import LIGHT, UNVERIFIED
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.webhook import DeliveryHeaders
from idem.outbox.providers.schemes.tries import tries
from idem.reconciler.webhooks.delivery import Delivery, secrets_of, verified

OF_ONE_TRY: Final = 1024
"""Bytes of a small body that cost as much to read as trying one secret."""

WAITING: Final = 65_536
"""Bytes that a delivery counts at least while it waits for its turn, because it holds its headers and its task."""


async def checked(
    catalogue: Catalogue,
    provider: str,
    account: str | None,
    headers: DeliveryHeaders,
    body: bytes,
    now: float,
    *,
    hold: Callable[[int], None] = lambda size: None,
) -> tuple[Delivery, ...]:
    """What `verified` finds. `hold`: asks for memory beside the body's, before a wait. Raises what both raise."""
    cost = len(body) + OF_ONE_TRY * tries(secrets_of(catalogue, provider, account))
    if cost > LIGHT and len(body) < WAITING:
        hold(WAITING - len(body))
    return await UNVERIFIED.run(
        f"webhooks {provider}/{account}", cost, lambda: verified(catalogue, provider, account, headers, body, now)
    )

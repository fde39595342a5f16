"""Holds the calls of one provider until what is measured begins."""

from __future__ import annotations

import asyncio

from idem.outbox.database import session
from idem.outbox.operator import pause as pausing

BY = "idem bench"
WHY = "until the measurement begins"


def hold(url: str, provider: str) -> None:
    """Workers make no call of this provider."""

    async def pause() -> None:
        async with await session.connect(url, name=BY) as connection:
            await pausing.pause(connection, provider, pausing.EVERY_ACCOUNT, ["calls"], by=BY, reason=WHY)

    asyncio.run(pause())


def release(url: str, provider: str) -> None:
    """Workers wake and make them."""

    async def resume() -> None:
        async with await session.connect(url, name=BY) as connection:
            await pausing.resume(connection, provider, pausing.EVERY_ACCOUNT, ["calls"], by=BY, reason=WHY)

    asyncio.run(resume())

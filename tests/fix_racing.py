"""Decisions of operators that begin at one moment."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from idem.errors import OperatorRefused


async def race(*runners: Awaitable[Any]) -> list[Any]:
    """Start all at one barrier; results in order, an OperatorRefused as a value."""
    barrier = asyncio.Barrier(len(runners))

    async def run(runner: Awaitable[Any]) -> Any:
        await barrier.wait()
        try:
            return await runner
        except OperatorRefused as refusal:
            return refusal

    return await asyncio.gather(*(run(runner) for runner in runners))

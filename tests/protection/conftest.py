"""An operator's desk, and pauses without the command line."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fix_spine import Spine

from idem.outbox.operator import pause as pausing

Act = Callable[..., Awaitable[Any]]


@pytest.fixture
def pause(spine: Spine) -> Act:
    async def act(*what: str, provider: str = "keyed", account: str = "", reason: str = "ticket 7") -> Any:
        return await spine.run(pausing.pause, provider, account, what, by="ada", reason=reason)  # type: ignore[arg-type]

    return act


@pytest.fixture
def resume(spine: Spine) -> Act:
    async def act(*what: str, provider: str = "keyed", account: str = "") -> Any:
        parts: Any = what or pausing.EVERYTHING
        return await spine.run(pausing.resume, provider, account, parts, by="grace", reason="over")

    return act

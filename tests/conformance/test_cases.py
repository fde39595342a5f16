"""Every case against `idem api run`, over real HTTP."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio
from conformance.idem_driver import OTHER, TENANT, IdemDriver
from conformance.installation import installed

from idem.outbox.api.store import secret
from idem.testing.conformance import Case, Runner, load

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

CASES = load()
Runners: TypeAlias = Callable[[str], Awaitable[Runner]]

NOT_HERE = {
    "restored": "needs pg_dump",
}
"""Steps without which a case may be skipped here, and why."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runners(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runners]:
    """A runner for a profile, whose server is started when it is first wanted."""
    made: dict[str, Runner] = {}
    async with AsyncExitStack() as stack:

        async def runner(profile: str) -> Runner:
            if profile not in made:
                folder = tmp_path_factory.mktemp(profile)
                made[profile] = await stack.enter_async_context(running(server, template, profile, folder))
            return made[profile]

        yield runner


@asynccontextmanager
async def running(server: str, template: str, profile: str, folder: Path) -> AsyncIterator[Runner]:
    """An installation with its driver."""
    async with installed(server, template, profile, folder) as place:
        async with place.database.connection() as connection:
            driver = IdemDriver(place, await secret(connection))
        tokens = {"token": await place.token(TENANT), "other_token": await place.token(OTHER)}
        place.target = replace(place.target, **tokens)
        yield Runner(place.target, driver)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
async def test_case(case: Case, runners: Runners) -> None:
    result = await (await runners(case.profile)).one(case)
    if result.outcome == "skipped" and NOT_HERE.keys() & set(case.steps()):
        pytest.skip("; ".join(result.reasons))
    assert result.outcome == "passed", "\n".join(result.reasons)

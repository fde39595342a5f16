"""Runs the cases one after another against one server."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from idem.testing.conformance import driver as drivers
from idem.testing.conformance.cases import Case
from idem.testing.conformance.driver import STATES, ConformanceWorld, NotPossible
from idem.testing.conformance.expectations import differences
from idem.testing.conformance.requests import written
from idem.testing.conformance.target import Target
from idem.testing.conformance.wire import Client, HungUp, WireAnswer

CaseOutcome: TypeAlias = Literal["passed", "partly", "failed", "skipped"]
"""partly: every answer was as expected, but the driver cannot count the effects or the rows."""

COUNTS = ("effects", "rows")

MEANWHILE = 0.3
"""Seconds after which a request counts as running."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of a case; `reasons` say what was not as expected, not counted or not possible."""

    case: Case
    outcome: CaseOutcome
    reasons: tuple[str, ...] = ()


class _Unexpected(Exception):
    """The case cannot continue, because its initial state was not reached."""


class Runner:
    """Runs cases against a target, with a driver that brings it into their initial states."""

    def __init__(self, target: Target, driver: Any = None, *, timeout: float = 60.0) -> None:
        self.target = target
        self.driver = drivers.HttpDriver() if driver is None else driver
        self._timeout = timeout

    async def run(self, cases: Iterable[Case]) -> list[CaseResult]:
        """Run the cases one after another; returns their results."""
        return [await self.one(case) for case in cases]

    async def one(self, case: Case) -> CaseResult:
        """Run one case."""
        if case.profile != self.target.profile:
            return CaseResult(case, "skipped", (f"for a server of profile {case.profile}",))
        if lacking := self._lacking(case):
            return CaseResult(case, "skipped", (f"the driver has no {', '.join(lacking)}",))
        client = Client(self.target.url, timeout=self._timeout)
        world = ConformanceWorld(self.target, client, self.target.token, f"conformance-{uuid4()}", case.operation)
        try:
            found = await self._play(case, world)
        except NotPossible as reason:
            return CaseResult(case, "skipped", (str(reason),))
        except LookupError as reason:
            return CaseResult(case, "skipped", (str(reason.args[0]) if reason.args else repr(reason),))
        except (_Unexpected, HungUp, OSError, TimeoutError) as error:
            return CaseResult(case, "failed", (f"{type(error).__name__.lstrip('_')}: {error}",))
        finally:
            if (clean_up := getattr(self.driver, "clean_up", None)) is not None:
                await clean_up(world)
        if found:
            return CaseResult(case, "failed", tuple(found))
        uncounted = self._uncounted(case)
        return CaseResult(case, "partly" if uncounted else "passed", tuple(uncounted))

    def _lacking(self, case: Case) -> list[str]:
        return sorted(name for name in set(case.steps()) if not hasattr(self.driver, name))

    def _uncounted(self, case: Case) -> list[str]:
        expected = {name for each in (case.expect, *(ask.get("expect", {}) for ask in case.asks)) for name in each}
        return [f"{name} were not counted" for name in COUNTS if name in expected and not hasattr(self.driver, name)]

    async def _play(self, case: Case, world: ConformanceWorld) -> list[str]:
        if STATES.keys() & case.given:
            await self._open(case, world)
        await self._bring_about(case.given, world)
        found: list[str] = []
        for number, ask in enumerate(case.asks, 1):
            await self._bring_about(ask.get("given", ()), world)
            if "request" in ask:
                wrong = await self._ask(ask, case, world)
                found += [f"request {number}: {each}" if len(case.asks) > 1 else each for each in wrong]
        return found + await self._counted(case.expect, world)

    async def _ask(self, ask: Mapping[str, Any], case: Case, world: ConformanceWorld) -> list[str]:
        said, expected = ask["request"], ask.get("expect", {})
        running = [asyncio.create_task(self._send(said, case, world)) for _ in range(ask.get("at_once", 1))]
        try:
            if "meanwhile" in ask:
                await asyncio.sleep(MEANWHILE)
                await self._bring_about(ask["meanwhile"], world)
            answers = await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        found: list[str] = []
        for answer in answers:
            if isinstance(answer, HungUp):
                if "hang_up_after" not in said:
                    raise answer
                continue
            # The other answers are compared with the first of them.
            if name := ask.get("as"):
                world.answers.setdefault(name, answer)
            world.intent = answer.intent() or world.intent
            found += differences(expected, answer, world)
        found += self._each_once(ask, [answer for answer in answers if isinstance(answer, WireAnswer)])
        return found + await self._counted(expected, world)

    def _each_once(self, ask: Mapping[str, Any], answers: list[WireAnswer]) -> list[str]:
        wanted: Mapping[str, int] = ask.get("expect", {}).get("times", {})
        counted = {status: sum(str(answer.status) == status for answer in answers) for status in wanted}
        return [f"{counted[s]} answers with {s}, expected {wanted[s]}" for s in wanted if counted[s] != wanted[s]]

    async def _counted(self, expected: Mapping[str, Any], world: ConformanceWorld) -> list[str]:
        found: list[str] = []
        for name in COUNTS:
            if name in expected and hasattr(self.driver, name):
                count = await getattr(self.driver, name)(world)
                if count != expected[name]:
                    found.append(f"{count} {name}, expected {expected[name]}")
        return found

    async def _open(self, case: Case, world: ConformanceWorld) -> None:
        """Send the request that creates the key for the first steps of the case."""
        answer = await self._send(case.opening, case, world)
        if isinstance(answer, HungUp):
            raise answer
        if not 200 <= answer.status < 300:
            raise _Unexpected(f"the opening request was answered {answer.status}: {answer.body[:200]!r}")
        world.answers["opening"] = answer
        world.intent = answer.intent()

    async def _bring_about(self, steps: Iterable[str], world: ConformanceWorld) -> None:
        for name in steps:
            await drivers.step(self.driver, name)(world)

    async def _send(self, said: Mapping[str, Any], case: Case, world: ConformanceWorld) -> WireAnswer | HungUp:
        method, path, headers, body, options = written(said, world, to=case.operation)
        try:
            return await world.client.send(method, path, headers, body, **options)
        except HungUp as gone:
            return gone

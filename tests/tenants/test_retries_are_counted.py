"""Each retry of a known key is one decision in the metrics and in its tenant's usage, whichever way it is found."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from accept.catalogues import changed
from accept.doors import DOORS, use
from fix_spine import Spine
from prometheus_client import REGISTRY

from idem import Answer, Idem
from idem.errors import ParamsInvalid
from idem.outbox.domain.catalogue import Catalogue
from idem.outcomes import Succeeded
from idem.sweeper.daemon import Sweeper

NAME = "pay.keyed"
PARAMS = {"amount": 100, "at": "10:00"}
OTHER = {**PARAMS, "amount": 7}
SHOWN = ("accepted", "replay", "retrying", "mismatch", "in_progress")
USAGE = """
SELECT coalesce(sum(requests), 0)::int AS requests, coalesce(sum(created), 0)::int AS created,
       coalesce(sum(replayed), 0)::int AS replayed, coalesce(sum(mismatch), 0)::int AS mismatch
  FROM idem.tenant_usage
"""


def refuse(_: Any) -> None:
    raise ParamsInvalid([("/note", "a member is missing")])


CHANGES: dict[str, Callable[[Catalogue], Catalogue]] = {
    "nothing changed": lambda c: c,
    "params are refused": lambda c: changed(c, validate=refuse),
    "a member is left out": lambda c: changed(c, fingerprint_without=("/at",)),
}


class Counting:
    """What was counted since: in the metric, and in the usage of tenants."""

    def __init__(self, spine: Spine, operation: str = NAME) -> None:
        self._spine = spine
        self._operation = operation
        self._before = self._metric()

    def _metric(self) -> dict[str, float]:
        return {
            each: REGISTRY.get_sample_value("idem_accepts_total", {"operation": self._operation, "decision": each}) or 0
            for each in SHOWN
        }

    async def metric(self) -> dict[str, float]:
        await Sweeper(self._spine.database, self._spine.catalogue).run_once()
        found, before = self._metric(), self._before
        self._before = found
        return {each: found[each] - before[each] for each in SHOWN if found[each] != before[each]}


@pytest.mark.parametrize("door", ["http", "library"])
@pytest.mark.parametrize("what", CHANGES)
async def test_each_door_counts_each_retry_once(spine: Spine, what: str, door: str) -> None:
    whole, ask = changed(spine.catalogue, card_data="allow"), DOORS[door]
    use(spine, whole)
    await ask(spine, PARAMS)
    await spine.rest()
    counts = Counting(spine)
    use(spine, CHANGES[what](whole))
    for params, decision in ((PARAMS, "retrying"), (PARAMS, "in_progress"), (OTHER, "mismatch")):
        await ask(spine, params)
        assert await counts.metric() == {decision: 1}
    await spine.work()
    assert (await ask(spine, PARAMS))[0] == "replay"
    assert await counts.metric() == {"replay": 1}
    assert await spine.one(USAGE) == {"requests": 5, "created": 1, "replayed": 1, "mismatch": 1}
    assert await spine.all("SELECT FROM idem.decisions_to_count") == []


@pytest.mark.parametrize("left_out", [[], ["/at"]])
async def test_reserve_counts_each_retry_once(spine: Spine, idem_toml: Path, left_out: list[str]) -> None:
    def ask(params: Any, **said: Any) -> None:
        call = Idem(idem_toml).operation("notes.create", **said).begin(key="k", body=params)
        with psycopg.connect(spine.url) as db:
            if call.reserve(db):
                call.complete(db, Answer(201, {}))

    ask(PARAMS)
    counts = Counting(spine, "notes.create")
    assert await counts.metric() == {"accepted": 1}
    for params, decision in ((PARAMS, "replay"), (OTHER, "mismatch")):
        ask(params, fingerprint_without=left_out)
        assert await counts.metric() == {decision: 1}


@pytest.mark.parametrize("changes", [{}, {"fingerprint_without": ["/at"]}, {"model": int}])
async def test_inline_calls_count_each_retry_once(spine: Spine, tmp_path: Path, monkeypatch: Any, changes: Any) -> None:
    monkeypatch.setenv("IDEM_DATABASE_URL", spine.url)
    path = tmp_path / "idem.toml"
    path.write_text('environment = "test"\n')

    def ask(params: Any, changes: dict[str, Any]) -> int:
        said = {"answer": lambda o: Answer(201, {}), "inline": True, **changes}
        with closing(Idem(path)) as idem:
            with idem.operation("labels.book", said.pop("model", None), **said).inline(params, key="k") as run:
                if run.mine:
                    run.complete(Succeeded("label-1"))
            return run.answer().status

    assert await asyncio.to_thread(ask, PARAMS, {}) == 201
    counts = Counting(spine, "labels.book")
    assert await counts.metric() == {"accepted": 1}
    for params, decision, status in ((PARAMS, "replay", 201), (OTHER, "mismatch", 422)):
        assert await asyncio.to_thread(ask, params, changes) == status
        assert await counts.metric() == {decision: 1}

"""An operation says the version of its answer: it is stored and sent with it, and a replay keeps it."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from adopt.shop import define
from fix_api import PAY, client
from fix_spine import Spine
from fix_sql import query

from idem import Answer
from idem.outbox.domain.operation import ANSWER_VERSION, versioned


async def stored(spine: Spine, key: str) -> Any:
    query = "SELECT response_schema_version AS version FROM idem.idempotency_keys WHERE idempotency_key = %(key)s"
    return (await spine.one(query, key=key))["version"]


async def test_a_replay_keeps_the_version_that_its_answer_was_stored_with(spine: Spine) -> None:
    for version, key in ((None, "k0"), (2, "k2"), (3, "k3")):
        async with client(spine, catalogue=spine.know(answer_version=version)) as api:
            assert (await api.ask(key)).status_code == 202
            await spine.work()
            told = await api.ask(key)
            assert told.status_code == 201
            assert told.headers.get(ANSWER_VERSION) == (None if version is None else str(version))
    assert [await stored(spine, key) for key in ("k0", "k2", "k3")] == [1, 2, 3]
    async with client(spine, catalogue=spine.know(answer_version=4)) as api:
        replays = [(await api.ask(key)).headers.get(ANSWER_VERSION) for key in ("k0", "k2", "k3")]
        described = (await api.http.get("/openapi.json")).json()["paths"][PAY]["post"]["responses"]["201"]["headers"]
    assert replays == [None, "2", "3"]
    assert ANSWER_VERSION in described


async def test_an_answer_that_the_reconciler_settles_has_its_version(spine: Spine) -> None:
    async with client(spine, catalogue=spine.know(answer_version=7)) as api:
        await api.ask("k")
        await spine.work(faults=["act_then_drop"])
        await spine.reconcile(after=10)
        assert (await api.ask("k")).headers[ANSWER_VERSION] == "7"


@pytest.mark.parametrize("end", ["complete", "refuse"])
def test_an_answer_of_the_callers_own_has_its_version(db_url: str, idem_toml: Path, end: str) -> None:
    idem, charge = define(idem_toml, answer_version=5)
    note = idem.operation("notes.create", key_ttl="72h", answer_version=5)
    told = []
    for _ in range(2):
        call = (note if end == "complete" else charge).begin(key="k", tenant="acme", body={"a": 1})
        with psycopg.connect(db_url) as db:
            if call.reserve(db):
                getattr(call, end)(db, Answer(422, {"a": 1}))
            db.commit()
            told.append(call.answer().headers[ANSWER_VERSION])
    assert told == ["5", "5"]
    assert query(db_url, "SELECT response_schema_version FROM idem.idempotency_keys") == [(5,)]


async def test_a_header_of_the_answers_own_is_no_version(spine: Spine) -> None:
    """It settles all the same, and is told as it is."""
    spine.know(answer=lambda outcome, intent: Answer(201, {}, {ANSWER_VERSION: "next"}))
    async with client(spine) as api:
        await api.ask("k")
        await spine.work()
        assert (await api.ask("k")).headers[ANSWER_VERSION] == "next"
    assert await stored(spine, "k") == 1


def test_the_operations_version_stands_alone() -> None:
    answer = versioned(Answer(201, {}, {"idempotent-answer-version": "9", "X-A": "a"}), 2)
    assert answer.headers == {"X-A": "a", ANSWER_VERSION: "2"}

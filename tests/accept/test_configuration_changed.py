"""A known key is decided by what it was accepted under, whatever its operation is configured like now (P3)."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from accept.catalogues import NAME, changed, without
from fix_accept import Acceptor
from fix_api import client
from fix_database import engine_of
from fix_spine import Spine
from producers.application import Application, synced

from idem.decisions import Accepted, InProgress, Mismatch, Replay, Retrying
from idem.errors import ConfigError, ParamsInvalid, Unrenderable
from idem.outbox.domain import fingerprints
from idem.outbox.domain.catalogue import Catalogue
from idem.sweeper.daemon import Sweeper

PARAMS = {"amount": 100, "at": "10:00"}


def refuse(_: Any) -> None:
    raise ParamsInvalid([("/note", "a member is missing")])


def unrenderable(_: Any) -> Any:
    raise Unrenderable("no request can be made of it")


CHANGES: dict[str, Callable[[Catalogue], Catalogue]] = {
    "a param became required": lambda c: changed(c, validate=refuse),
    "no request can be made of it": lambda c: changed(c, request=unrenderable),
    "a member is left out": lambda c: changed(c, fingerprint_without=("/at",)),
    "members are left out that it lacks": lambda c: changed(c, fingerprint_without=("/gone", "/a/b")),
    "the operation is gone": without,
    "it became inline": lambda c: changed(c, kind="inline"),
    "it became local": lambda c: changed(c, kind="local"),
    "card data is refused": lambda c: changed(c, card_data="refuse", validate=refuse),
}


def use(spine: Spine, catalogue: Catalogue) -> None:
    spine.catalogue = catalogue
    spine.acceptor = Acceptor(catalogue.operations, catalogue.providers)


async def ask(spine: Spine, params: Any) -> Any:
    async with client(spine) as api:
        return await api.ask(json=params)


@pytest.mark.parametrize("what", CHANGES)
async def test_the_http_api_gives_the_stored_answer(spine: Spine, what: str) -> None:
    first = await ask(spine, PARAMS)
    assert first.status_code == 202
    await spine.work()
    before = await ask(spine, PARAMS)
    assert before.status_code == 201
    spine.catalogue = CHANGES[what](spine.catalogue)
    again = await ask(spine, PARAMS)
    assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (201, before.content, "true")
    other = await ask(spine, {**PARAMS, "amount": 101})
    assert other.json()["code"] == "key_reused", "other content is another request all the same"


def accepted_again(spine: Spine, params: Any = PARAMS) -> Any:
    engine = engine_of(spine.url)
    with engine.begin() as connection:
        return spine.acceptor.accept(connection, "t", NAME, "k1", params)


@pytest.mark.parametrize("what", CHANGES)
async def test_accept_in_python_replays_after_the_end(spine: Spine, what: str) -> None:
    whole = spine.catalogue
    assert isinstance(accepted_again(spine), Accepted)
    use(spine, CHANGES[what](whole))
    assert isinstance(accepted_again(spine), InProgress), "before the end it is what it is, and never accepted anew"
    use(spine, whole)
    await spine.work()
    before = accepted_again(spine)
    assert isinstance(before, Replay)
    use(spine, CHANGES[what](whole))
    again = accepted_again(spine)
    assert isinstance(again, Replay) and again.answer == before.answer
    assert isinstance(accepted_again(spine, {**PARAMS, "amount": 101}), Mismatch)


async def test_a_new_key_is_refused_as_before(spine: Spine) -> None:
    use(spine, changed(spine.catalogue, validate=refuse))
    with pytest.raises(ParamsInvalid):
        accepted_again(spine)
    use(spine, without(spine.catalogue))
    with pytest.raises(ConfigError):
        accepted_again(spine)
    assert (await ask(spine, PARAMS)).status_code == 404


async def test_a_key_at_rest_goes_back_to_work_with_its_frozen_request(spine: Spine) -> None:
    """Its params would be refused now, and were accepted: the retry sends what was frozen then."""
    spine.bank.script(None, ["401"])
    accepted_again(spine)
    await spine.all("UPDATE idem.outbox SET start_before = now() RETURNING id")
    await Sweeper(spine.database, spine.catalogue).run_once()
    assert (await spine.one("SELECT status FROM idem.outbox"))["status"] == "held"
    use(spine, changed(spine.catalogue, validate=refuse))
    assert isinstance(accepted_again(spine), Retrying)
    assert (await spine.one("SELECT status FROM idem.outbox"))["status"] == "pending"


SQL_CHANGES = {
    "a member is left out": {"fingerprint_without": ("/at",)},
    "card data is refused": {"card_data": "refuse"},
    "it became inline": {"kind": "inline"},
}


@pytest.mark.parametrize("what", SQL_CHANGES)
async def test_accept_by_sql_gives_the_stored_answer(spine: Spine, what: str) -> None:
    params = {**PARAMS, "pan": "4111111111111111"}
    use(spine, changed(spine.catalogue, card_data="allow"))
    synced(spine.url, spine.catalogue)
    application = Application(spine.url)
    assert application.once(params=params).decision == "accepted"
    await spine.work()
    before = application.once(params=params)
    assert before.decision == "replay"
    use(spine, changed(spine.catalogue, **{"card_data": "allow", **SQL_CHANGES[what]}))
    synced(spine.url, spine.catalogue)
    again = application.once(params=params)
    assert (again.decision, again.response_body) == ("replay", before.response_body)
    assert application.once(params={**params, "amount": 5}).decision == "mismatch"


async def test_accept_by_sql_knows_a_key_of_an_operation_that_is_gone(spine: Spine) -> None:
    synced(spine.url, spine.catalogue)
    application = Application(spine.url)
    application.once(params=PARAMS)
    await spine.work()
    await spine.all("DELETE FROM idem.operations RETURNING name")
    assert application.once(params=PARAMS).decision == "replay"
    with pytest.raises(psycopg.Error, match="knows no operation"):
        application.once("k2", params=PARAMS)


@pytest.mark.parametrize("left_out", [(), ("/at",), ("/z~1/ü", "/a", "/a"), ("/😀", "/\ue000")])
async def test_python_and_sql_compose_the_same_fingerprint(spine: Spine, left_out: tuple[str, ...]) -> None:
    params = {"at": "10:00", "a": 1, "z/": {"ü": 2, "x": 3}, "😀": 1, "\ue000": 2}
    print_ = fingerprints.of("op", params, left_out)
    found = await spine.one(
        "SELECT idem.fingerprint_excluding('op', %(p)s::jsonb, idem.jcs(%(p)s::json), %(o)s::text[]) AS print,"
        " idem.fingerprint_exclusions(%(f)s) AS left_out",
        p=json.dumps(params), o=list(left_out), f=print_,
    )  # fmt: skip
    assert found["print"] == print_
    assert tuple(found["left_out"]) == fingerprints.left_out(print_) == tuple(sorted(set(left_out)))
    assert fingerprints.composed_as(print_, "op", params) == print_ != fingerprints.composed_as(print_, "other", params)

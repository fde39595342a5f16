"""A known key is decided by what it was accepted under, whatever its operation is configured like now (P3)."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from accept.catalogues import changed, without
from accept.doors import DOORS, PARAMS, by_http, by_sql, use
from fix_spine import Spine

from idem.decisions import Retrying
from idem.errors import ConfigError, ParamsInvalid, Unrenderable
from idem.outbox.domain import fingerprints
from idem.outbox.domain.catalogue import Catalogue


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


@pytest.mark.sample(2)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", CHANGES)
async def test_each_door_gives_the_stored_answer(spine: Spine, what: str, door: str) -> None:
    whole, ask = changed(spine.catalogue, card_data="allow"), DOORS[door]
    use(spine, whole)
    assert await ask(spine) == ("taken", None)
    use(spine, CHANGES[what](whole))
    assert await ask(spine) == ("in_progress", None), "before the end it is what it is, and never accepted anew"
    use(spine, whole)
    await spine.work()
    before = await ask(spine)
    assert before[0] == "replay"
    use(spine, CHANGES[what](whole))
    assert await ask(spine) == before
    assert await ask(spine, {**PARAMS, "amount": 101}) == ("mismatch", None), "other content is another request"


async def test_a_new_key_is_refused_as_before(spine: Spine) -> None:
    use(spine, changed(spine.catalogue, validate=refuse))
    with pytest.raises(ParamsInvalid):
        spine.accept()
    use(spine, without(spine.catalogue))
    with pytest.raises(ConfigError):
        spine.accept()
    assert await by_http(spine) == ("not_found", None)
    with pytest.raises(psycopg.Error, match="knows no operation"):
        await by_sql(spine)


async def test_a_key_at_rest_goes_back_to_work_with_its_frozen_request(spine: Spine) -> None:
    """Its params would be refused now, and were accepted: the retry sends what was frozen then."""
    spine.accepted()
    await spine.rest()
    assert (await spine.one("SELECT status FROM idem.outbox"))["status"] == "held"
    use(spine, changed(spine.catalogue, validate=refuse))
    assert isinstance(spine.accept(), Retrying)
    assert (await spine.one("SELECT status FROM idem.outbox"))["status"] == "pending"


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

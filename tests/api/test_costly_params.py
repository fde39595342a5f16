"""A small body that could be checked for ever is answered, and the API goes on."""

from dataclasses import replace
from typing import Any

import pytest
from fix_api import client
from fix_spine import Spine, operation

from idem.outbox.config.params_validation import TOO_COSTLY, validator

INNER: dict[str, Any] = {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["c"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "recursive": {
        "$defs": {"n": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "a": INNER,
                  "b": {**INNER, "title": ""}},
        "properties": {"order": {"$ref": "#/$defs/n"}},
    },
    "ambiguous": {"properties": {"order": {"pattern": "^(a+)+$"}}},
    "wide": {"properties": {"order": {"items": {"items": {"oneOf": [{"required": [f"p{n}"]} for n in range(2000)]}}}}},
}  # fmt: skip


def nested(depth: int) -> Any:
    found: Any = 5
    for _ in range(depth):
        found = {"c": found}
    return found


@pytest.mark.timeout(300)
async def test_a_body_that_could_cost_for_ever_is_refused_in_words(spine: Spine) -> None:
    made = {f"pay.{name}": operation(f"pay.{name}", "keyed", validate=validator(schema), request=spine_request)
            for name, schema in SCHEMAS.items()}  # fmt: skip
    known = replace(spine.catalogue, operations={**spine.catalogue.operations, **made})
    async with client(spine, catalogue=known) as api:
        for name, order, said in (
            ("recursive", nested(60), "is not valid under any of the given schemas"),
            ("ambiguous", "a" * 60_000 + "!", "does not match"),
            ("wide", [[{"p1999": n} for n in range(50)]], TOO_COSTLY),
        ):
            answer = await api.ask(path=f"/v1/intents/pay.{name}", json={"order": order})
            assert (answer.status_code, answer.json()["code"]) == (422, "params_invalid"), answer.text
            assert said in answer.json()["errors"][0]["detail"]
            assert len(answer.content) < 2000
        assert (await api.ask(key="after")).status_code == 202


def spine_request(params: Any) -> Any:
    raise AssertionError("none of these is taken")

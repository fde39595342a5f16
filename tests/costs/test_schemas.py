"""Params take steps as they are many, whatever the operation's schema: it may refer to itself, and have patterns."""

import asyncio
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from costs.steps import grows_with_the_square, steps
from jsonschema import Draft202012Validator

from idem.errors import ParamsInvalid
from idem.outbox.api.large_bodies import Heavy
from idem.outbox.config import params_validation as validation
from idem.outbox.config.params_validation import TOO_COSTLY, TOO_DEEP, validator
from idem.outbox.config.schema_checks import check_schema, references
from idem.outbox.config.schema_cost import AT_ONCE, BASE, NotAtOnce, Steps, TooCostly, at_once
from idem.outbox.config.schema_evaluation import Evaluator, Plan, named
from idem.outbox.config.schema_keywords import KEYWORDS
from idem.outbox.config.schema_patterns import pattern, states

SEEDS = int(os.environ.get("IDEM_SCHEMA_SEEDS", "400"))


def level(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}, **more}, "required": ["c"]}


def recursive(node: dict[str, Any]) -> dict[str, Any]:
    leaf = {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["c"]}
    return {"$defs": {"n": node, "a": leaf, "b": level(k={"type": "integer"})}, "$ref": "#/$defs/n"}


BOTH = [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]
END: dict[str, Any] = {"type": "integer"}
RECURSIVE: dict[str, dict[str, Any]] = {
    "oneOf": recursive({"oneOf": BOTH}),
    "oneOf with an end": recursive({"oneOf": [END, *BOTH]}),
    "anyOf": recursive({"anyOf": BOTH}),
    "anyOf with an end": recursive({"anyOf": [*BOTH, END]}),
    "allOf": recursive({"if": {"type": "object"}, "then": {"allOf": BOTH}, "else": {"type": "string"}}),
    "allOf that holds": recursive({"if": {"type": "object"}, "then": {"allOf": BOTH}}),
    "not": recursive({"anyOf": [{"not": {"$ref": "#/$defs/a"}}, {"not": {"$ref": "#/$defs/b"}}]}),
    "if": recursive({"if": {"$ref": "#/$defs/a"}, "then": {"$ref": "#/$defs/b"}, "else": END}),
    "dependentSchemas": recursive({"type": "object", "dependentSchemas": {"c": BOTH[0]}, "anyOf": BOTH}),
    "unevaluatedProperties": recursive({"anyOf": BOTH, "unevaluatedProperties": False}),
    "additionalProperties": {
        "$defs": {"n": {"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}},
                                  {"type": "object", "patternProperties": {"c": {"$ref": "#/$defs/n"}}}]}},
        "$ref": "#/$defs/n",
    },
    "the whole": {"anyOf": [{"type": "object", "properties": {"c": {"$ref": "#"}}, "required": ["c"]}] * 2},
}  # fmt: skip


def nested(n: int, end: Any = 5) -> Any:
    for _ in range(n):
        end = {"c": end}
    return end


def assert_cheap(validate: Callable[[Any], None], params: Any) -> None:
    try:
        validate(params)
    except ParamsInvalid as error:
        assert {message for _, message in error.problems}.isdisjoint({TOO_COSTLY, TOO_DEEP})


def lists(n: int) -> Any:
    found: Any = 5
    for _ in range(n):
        found = [found, 1]
    return found


@pytest.mark.parametrize("end", [5, "x", None])
@pytest.mark.parametrize("name", RECURSIVE)
def test_a_schema_that_refers_to_itself_takes_steps_as_the_params_are_deep(name: str, end: Any) -> None:
    check_schema(RECURSIVE[name])
    validate = validator(RECURSIVE[name])
    assert not grows_with_the_square(lambda n: steps(lambda: validate(nested(n, end))), 4)
    assert_cheap(validate, nested(60, end))


ITEMS = {
    "items": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "prefixItems": [{"$ref": "#"}]}]},
    "contains": {"anyOf": [{"type": "array", "contains": {"$ref": "#"}}] * 2},
    "unevaluatedItems": {"anyOf": [{"type": "array", "prefixItems": [{"$ref": "#"}]}] * 2, "unevaluatedItems": False},
    "uniqueItems": {"if": {"type": "array"}, "then": {"uniqueItems": True, "items": {"$ref": "#"}}},
}


@pytest.mark.parametrize("name", ITEMS)
def test_lists_of_lists_take_steps_as_they_are_deep(name: str) -> None:
    check_schema(ITEMS[name])
    validate = validator(ITEMS[name])
    assert not grows_with_the_square(lambda n: steps(lambda: validate(lists(n))), 4)
    assert_cheap(validate, lists(60))


def test_every_keyword_that_has_schemas_in_it_is_in_these_tests() -> None:
    shown = str([RECURSIVE, ITEMS])
    with_parts = set(KEYWORDS) & {
        "$ref", "additionalProperties", "allOf", "anyOf", "contains", "dependentSchemas", "if", "items", "not", "oneOf",
        "patternProperties", "prefixItems", "properties", "unevaluatedItems", "unevaluatedProperties",
    }  # fmt: skip
    assert len(with_parts) == 15
    assert [each for each in with_parts if f"'{each}'" not in shown] == []
    assert "$dynamicRef" not in KEYWORDS


def test_params_that_cost_too_much_are_refused_in_words() -> None:
    alternatives = [{"required": [f"p{n}"]} for n in range(1000)]
    validate = validator({"items": {"anyOf": alternatives}})
    validate([{"p999": n} for n in range(30)])
    validate = validator({"items": {"items": {"anyOf": alternatives}}})
    with pytest.raises(ParamsInvalid) as refused:
        validate([[{"p999": n} for n in range(10)] for _ in range(50)])
    assert refused.value.problems == [("", TOO_COSTLY)]
    counted = Steps(3)
    counted.take(BASE)
    with pytest.raises(TooCostly):
        counted.take(1000)


def parts_in_place(depth: int, keyword: dict[str, Any]) -> dict[str, Any]:
    """A schema with so many parts that speak of one value."""
    part: dict[str, Any] = dict(keyword)
    for _ in range(depth):
        part = {**keyword, "allOf": [part]}
    return part


WIDE: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "unevaluatedProperties": ({"unevaluatedProperties": False}, {"additionalProperties": True}, True),
    "unevaluatedProperties, by name": ({"unevaluatedProperties": False}, {"properties": {"m1": True}}, True),
    "unevaluatedItems": ({"unevaluatedItems": False}, {"items": True}, False),
    "additionalProperties": ({}, {"additionalProperties": {}}, True),
    "propertyNames": ({}, {"propertyNames": {}}, True),
    "items": ({}, {"items": {}}, False),
    "contains": ({}, {"contains": {}}, False),
}


@pytest.mark.parametrize("name", WIDE)
def test_what_looks_at_every_entry_counts_the_entries_for_each_part_of_the_schema(name: str) -> None:
    """The steps grow with the entries times the keywords: what is not counted could be as much as anybody likes.

    Each part has two keywords here. `unevaluated…` asks each part again which entries it has looked at.
    """
    top, keyword, members = WIDE[name]

    def taken(parts: int, entries: int) -> int:
        schema = {**parts_in_place(parts, keyword), **top}
        check_schema(schema)
        value, count = named({f"m{n}": n for n in range(entries)} if members else list(range(entries)))
        evaluator = Evaluator(Plan(schema, KEYWORDS, references(schema)), Steps(count))
        evaluator.holds(schema, value)
        return evaluator.steps.taken

    asked = 3 if top else 2
    for parts in (10, 20):
        assert taken(parts, 3200) - taken(parts, 1600) >= asked * parts * 1600 // 16


def test_params_that_are_too_deep_for_a_schema_are_refused_in_words() -> None:
    chain: dict[str, Any] = {f"r{n}": {"$ref": f"#/$defs/r{n + 1}"} for n in range(20)}
    chain["r20"] = {"properties": {"c": {"$ref": "#/$defs/r0"}}}
    schema = {"$defs": chain, "$ref": "#/$defs/r0"}
    check_schema(schema)
    with pytest.raises(ParamsInvalid) as refused:
        validator(schema)(nested(60))
    assert refused.value.problems == [("", TOO_DEEP)]


def test_small_params_that_are_much_work_are_not_checked_in_the_loop() -> None:
    validate = validator({"items": {"anyOf": [{"type": "string"}] * 60 + [{"maximum": 3}]}})
    where: list[int] = []

    def work() -> None:
        where.append(threading.get_ident())
        validate([*[1] * 500, 4])

    with at_once(), pytest.raises(NotAtOnce):
        validate([*[1] * 500, 4])
    with pytest.raises(ParamsInvalid):
        asyncio.run(Heavy().run("t", 1500, work))
    assert len(where) == 2
    assert where[0] == threading.get_ident() != where[1]
    where.clear()
    with pytest.raises(ParamsInvalid):
        asyncio.run(Heavy().run("t", 30, lambda: validate([4] * 10)))
    assert AT_ONCE < BASE


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, "would not end"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "would not end"),
        ({"$defs": {"a": {"$dynamicRef": "#a"}}}, "$dynamicRef"),
        ({"properties": {"a": {"$id": "urn:a", "$ref": "#/properties/b"}, "b": {}}}, "stands inside"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "Draft 2020-12"),
        ({"properties": {"default": {"$ref": "#/nowhere"}}}, "leads nowhere"),
        ({"properties": {"a": {"$ref": "#/properties/b/enum"}, "b": {"enum": [1]}}}, "the top"),
    ],
)
def test_a_schema_that_could_not_be_asked_is_refused_at_the_start(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="(?s).*" + said.replace("$", r"\$")):
        check_schema(schema)


def test_a_schema_that_names_its_dialect_has_the_same_keywords() -> None:
    schema = {**RECURSIVE["the whole"], "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:x"}
    check_schema(schema)
    validate = validator(schema)
    assert not grows_with_the_square(lambda n: steps(lambda: validate(nested(n))), 4)


COSTLY = [r"^(a+)+$", r"^(a|aa)+$", r"^(a|a)*$", r"(.*a){20}", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"\s+$"]


@pytest.mark.parametrize("text", COSTLY)
@pytest.mark.parametrize(
    "place", ["pattern", "patternProperties", "additionalProperties", "propertyNames", "unevaluated"]
)
def test_a_pattern_never_runs_in_an_engine_that_tries_again(
    text: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "a" * 4000 + "!"
    schemas: dict[str, tuple[dict[str, Any], Any]] = {
        "pattern": ({"pattern": text}, long),
        "patternProperties": ({"patternProperties": {text: {"type": "string"}}}, {long: 1}),
        "additionalProperties": ({"patternProperties": {text: {}}, "additionalProperties": False}, {long: 1}),
        "propertyNames": ({"propertyNames": {"pattern": text}}, {long: 1}),
        "unevaluated": ({"patternProperties": {text: {}}, "unevaluatedProperties": False}, {long: 1}),
    }
    schema, params = schemas[place]
    check_schema(schema)
    validate = validator(schema)

    def refuse(*_: object) -> None:
        raise AssertionError("a pattern of a schema runs in Python's engine")

    for name in ("search", "match", "fullmatch"):
        monkeypatch.setattr(f"re.{name}", refuse)
    try:
        validate(params)
    except ParamsInvalid as error:
        assert "pattern of a schema" not in str(error)


@pytest.mark.parametrize("text", COSTLY)
def test_a_pattern_costs_its_length_times_that_of_the_text(text: str) -> None:
    assert pattern(text).cost("a" * 8000) <= 1 + 4 * pattern(text).cost("a" * 2000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"^(?=.*[0-9]).+$", "look-ahead"),
        (r"^(a)\1$", "backreferences"),
        (r"^[a-z]{1,2000}$", "counts too far"),
        (r"^(([a-z]{1,50}){1,50}){2}$", "counts too far"),
        (r"[[a]]", "different things"),
        (r"[a&&b]", "different things"),
        (r"(a", "not a regular expression"),
    ],
)
def test_a_pattern_that_cannot_be_run_so_is_refused_at_the_start(text: str, said: str) -> None:
    for schema in ({"items": {"pattern": text}}, {"$defs": {"a": {"patternProperties": {text: {}}}}}):
        with pytest.raises(ValueError, match=said):
            check_schema(schema)


@pytest.mark.parametrize("depth", [2_000, 20_000])
def test_a_pattern_that_is_nested_too_deeply_is_refused_at_the_start(depth: int) -> None:
    with pytest.raises(ValueError, match="groups inside each other") as refused:
        check_schema({"pattern": "(" * depth + "a" + ")" * depth})
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("text", "most"),
    [("^a$", 1), ("^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$", 34), ("a{3,}", 4), ("(ab){3}c", 7), (r"\d{4}-\d{2}", 7),
     ("((ab){2}c){3}", 15), (r"[\]]{5}x?", 6), ("a|bc*", 3)],
)  # fmt: skip
def test_counted_repetitions_are_written_out(text: str, most: int) -> None:
    assert states(text) == most


def test_patterns_are_searched_for_as_json_schema_says() -> None:
    assert pattern("b").found_in("abc")
    assert not pattern("^b").found_in("abc")
    assert pattern(r"^\d+$").found_in("12")
    assert not pattern("^a$").found_in("a\n")


PLAIN = [
    True, {"not": {}}, {}, {"type": "integer"}, {"type": "string"}, {"type": "array"}, {"type": ["object", "null"]},
    {"const": 1}, {"const": [1]}, {"const": False}, {"enum": [1, "a", [1], None]}, {"minLength": 2}, {"minimum": 1},
    {"pattern": "^a"}, {"uniqueItems": True},
]  # fmt: skip


class Made:
    """Schemas and params at random, with few names, so that they meet."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def value(self, depth: int) -> Any:
        kinds = 6 if depth else 4
        match self.chance.randrange(kinds):
            case 0:
                return self.chance.choice([0, 1, 1.5, -3, True, False, None])
            case 1 | 2:
                return self.chance.choice(["", "a", "ab", "b1", "eur"])
            case 3:
                return self.chance.choice([[], {}, [1], {"a": 1}])
            case 4:
                return [self.value(depth - 1) for _ in range(self.chance.randrange(4))]
            case _:
                names = self.chance.sample(["a", "b", "c", "ab"], self.chance.randrange(4))
                return {name: self.value(depth - 1) for name in names}

    def schema(self, depth: int) -> Any:
        if depth == 0:
            return self.chance.choice(PLAIN)
        found: dict[str, Any] = {}
        for _ in range(self.chance.randrange(1, 4)):
            found.update(self.keyword(depth - 1))
        return found

    def keyword(self, depth: int) -> dict[str, Any]:
        one: Callable[[], Any] = lambda: self.schema(self.chance.randrange(depth + 1))  # noqa: E731
        some = [one() for _ in range(self.chance.randrange(1, 4))]
        return self.chance.choice([
            {"allOf": some}, {"anyOf": some}, {"oneOf": some}, {"not": some[0]}, {"if": some[0], "then": some[-1]},
            {"if": some[0], "else": some[-1]}, {"items": some[0]}, {"prefixItems": some}, {"contains": some[0]},
            {"contains": some[0], "minContains": 0, "maxContains": 1},
            {"properties": dict(zip("abc", some, strict=False))},
            {"properties": {"a": {"$ref": "#"}}}, {"items": {"$ref": "#"}}, {"patternProperties": {"^a": some[0]}},
            {"additionalProperties": some[0]}, {"propertyNames": some[0]}, {"dependentSchemas": {"a": some[0]}},
            {"unevaluatedProperties": some[0]}, {"unevaluatedItems": some[0]}, {"required": ["a"]},
            {"dependentRequired": {"a": ["b"]}}, {"uniqueItems": True}, {"type": "object"}, {"minItems": 1},
            {"maxProperties": 2}, {"multipleOf": 0.5}, {"type": ["array", "object"]}, {"enum": [self.value(1), 1]},
            {"$defs": {"d": some[0]}, "$ref": "#/$defs/d"},
        ])  # fmt: skip


def test_params_are_taken_and_refused_as_jsonschema_takes_and_refuses_them() -> None:
    refused = taken = 0
    for seed in range(SEEDS):
        made = Made(seed)
        schema = made.schema(3)
        if "$defs" in str(schema) and "$defs" not in schema:
            continue  # its reference leads nowhere
        try:
            check_schema(schema)
        except ValueError:
            continue
        ours, theirs = validator(schema), Draft202012Validator(schema)
        for _ in range(6):
            params = made.value(3)
            places = {"/" + "/".join(map(str, each.absolute_path)) for each in theirs.iter_errors(params)}
            try:
                ours(params)
            except ParamsInvalid as error:
                refused += 1
                assert places, (schema, params, error.problems)
                assert all(not place or place in places for place, _ in error.problems), (schema, params)
            else:
                taken += 1
                assert not places, (schema, params)
    assert refused > SEEDS / 2
    assert taken > SEEDS / 2


def test_errors_stand_at_their_places() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}, "b": {"enum": ["x"]}}, "required": ["c"]}
    with pytest.raises(ParamsInvalid) as refused:
        validator(schema)({"a": [1, "x", {}], "b": {}})
    assert [place for place, _ in refused.value.problems] == ["", "/a/1", "/a/2", "/b"]
    with pytest.raises(ParamsInvalid) as refused:
        validator({"properties": {"a": False}})({"a": 1})
    assert refused.value.problems == [("/a", "nothing may stand here")]
    with pytest.raises(ParamsInvalid) as refused:
        validator({"items": {"type": "integer"}})(["x"] * 100)
    assert len(refused.value.problems) == validation.MAX_PROBLEMS


@pytest.mark.parametrize("text", [r"^(\w+\s*){1,160}$", r"(?:\S?\w?){1,200}", r"^(é|\w){1,400}$"])
def test_a_count_of_wide_classes_is_refused(text: str) -> None:
    """Each class is an automaton of hundreds of states: written out a hundred times, a letter takes tens of µs."""
    with pytest.raises(ValueError, match="counts"):
        pattern(text)


@pytest.mark.parametrize("text", [r"^\w+$", r"^.{1,255}$", r"^\w{1,64}$", r"^[^@]+@[^@]+$", r"^\S+@\S+\.\S+$"])
def test_usual_patterns_are_taken(text: str) -> None:
    assert pattern(text).cost("x" * 1000) < 10_000


def test_one_search_has_an_end_of_its_own_however_many_values_there_are() -> None:
    """It holds the whole process while it runs, so many small values beside a long one do not pay for it."""
    counted = Steps(100_000)
    with pytest.raises(TooCostly):
        counted.take_at_once(pattern(r"^(\w+\s*){1,90}$").cost("x" * 60_000))
    counted.take(50_000)

"""Compares an answer with the one that a case expects; each difference is a sentence."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from idem.testing.conformance.driver import ConformanceWorld
from idem.testing.conformance.requests import filled
from idem.testing.conformance.wire import WireAnswer

NAMED = {
    "seconds": "[1-9][0-9]*",
    "date": r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT",
    "time": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}
"""The meanings of `{"is": …}`: whole seconds from 1, an HTTP date (RFC 9110, 5.6.7), a time of RFC 3339, a UUID."""

SHOWN = 300
"""Bytes of a wrong body to show."""


def differences(expected: Mapping[str, Any], answer: WireAnswer, world: ConformanceWorld) -> list[str]:
    """The differences from the expected answer, in words; empty if there are none."""
    return list(_differences(expected, answer, world))


def _differences(expected: Mapping[str, Any], answer: WireAnswer, world: ConformanceWorld) -> Iterator[str]:
    if "status" in expected and answer.status not in _list(expected["status"]):
        wanted = " or ".join(str(each) for each in _list(expected["status"]))
        yield f"status {answer.status}, expected {wanted}; body {_shown(answer.body)}"
    for name, wanted in expected.get("headers", {}).items():
        yield from _header(name, wanted, answer, world)
    if "problem" in expected:
        yield from _problem(expected["problem"], answer, world)
    if "pointers" in expected:
        found = sorted(str(each.get("pointer")) for each in _members(answer).get("errors", []))
        if found != sorted(expected["pointers"]):
            yield f"errors point to {found}, expected {sorted(expected['pointers'])}"
    if "json" in expected:
        try:
            yield from _subset("", expected["json"], answer.json(), world)
        except ValueError:
            yield f"the body is not JSON: {_shown(answer.body)}"
    if "body_hex" in expected and answer.body != bytes.fromhex(expected["body_hex"]):
        yield f"other bytes: {_shown(answer.body)}"
    if "size" in expected and len(answer.body) != expected["size"]:
        yield f"{len(answer.body)} bytes, expected {expected['size']}"
    if "contains" in expected and expected["contains"].encode() not in answer.body:
        yield f"the body does not contain {expected['contains']!r}: {_shown(answer.body)}"
    if "lacks" in expected and filled(expected["lacks"], world).encode() in answer.body:
        yield f"the body contains {filled(expected['lacks'], world)!r}"
    if "same_as" in expected:
        yield from _same(expected["same_as"], answer, world)
    if "same_intent_as" in expected:
        mine, first = answer.intent(), world.answers[expected["same_intent_as"]].intent()
        if mine is None or mine != first:
            yield f"it is about intent {mine}, but {expected['same_intent_as']} about {first}"
    if "within" in expected and answer.seconds > expected["within"]:
        yield f"it took {answer.seconds:.1f} s, more than {expected['within']}"


def _header(name: str, wanted: Any, answer: WireAnswer, world: ConformanceWorld) -> Iterator[str]:
    found = answer.header(name)
    match wanted:
        case False if found is not None:
            yield f"header {name}: {found!r}, expected none"
        case True if found is None:
            yield f"header {name} is missing"
        case str() if found != filled(wanted, world):
            yield f"header {name}: {found!r}, expected {filled(wanted, world)!r}"
        case {"pattern": str() as pattern} if found is None or not re.fullmatch(pattern, found):
            yield f"header {name}: {found!r} does not match {pattern}"
        case {"is": str() as named} if found is None or not re.fullmatch(NAMED[named], found):
            yield f"header {name}: {found!r}, expected {named}"
        case {"at_least": int() as least} if found is None or not found.isdigit() or int(found) < least:
            yield f"header {name}: {found!r}, expected at least {least}"
        case {"at_most": int() as most} if found is None or not found.isdigit() or int(found) > most:
            yield f"header {name}: {found!r}, expected at most {most}"


def _problem(code: str, answer: WireAnswer, world: ConformanceWorld) -> Iterator[str]:
    """RFC 9457: media type, `status` as sent, `title` and `detail` for people, and the code of this kind."""
    if (answer.header("content-type") or "").partition(";")[0] != "application/problem+json":
        yield f"content-type {answer.header('content-type')}, expected application/problem+json"
    found = _members(answer)
    if found.get("status") != answer.status:
        yield f"the problem says status {found.get('status')!r} in an answer with {answer.status}"
    for member in ("title", "detail"):
        if not (isinstance(found.get(member), str) and found[member]):
            yield f"the problem has no {member}"
    wanted = world.target.code(code)
    if wanted is None:
        return
    if found.get("code") != wanted:
        yield f"problem {found.get('code')!r}, expected {wanted!r}: {found.get('detail')}"
    if not str(found.get("type", "")).endswith(f"/{wanted}"):
        yield f"the problem's type is {found.get('type')!r}, which does not name {wanted!r}"


def _subset(where: str, wanted: Any, found: Any, world: ConformanceWorld) -> Iterator[str]:
    """Members that are not named may exist; lists are as long as expected."""
    match wanted:
        case {"$pattern": str() as pattern}:
            if not (isinstance(found, str) and re.fullmatch(pattern, found)):
                yield f"{where or 'the body'} is {found!r}, which does not match {pattern}"
        case {"$is": str() as named}:
            if not (isinstance(found, str) and re.fullmatch(NAMED[named], found)):
                yield f"{where or 'the body'} is {found!r}, expected {named}"
        case {"$absent": True}:
            yield f"{where} is {found!r}, expected none"
        case {"$some": inner}:
            if not isinstance(found, list) or all(list(_subset("", inner, each, world)) for each in found):
                yield f"{where or 'the body'} has no item like {json.dumps(inner)}: {_shown(json.dumps(found))}"
        case dict():
            if not isinstance(found, dict):
                yield f"{where or 'the body'} is {found!r}, expected an object"
                return
            for name, value in wanted.items():
                if name in found:
                    yield from _subset(f"{where}/{name}", value, found[name], world)
                elif value != {"$absent": True}:
                    yield f"{where}/{name} is missing"
        case list():
            if not isinstance(found, list) or len(found) != len(wanted):
                yield f"{where or 'the body'} is {found!r}, expected {len(wanted)} items"
                return
            for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
                yield from _subset(f"{where}/{number}", one, other, world)
        case _:
            if isinstance(wanted, str):
                wanted = filled(wanted, world)
            if found != wanted or type(found) is not type(wanted):
                yield f"{where or 'the body'} is {found!r}, expected {wanted!r}"


def _same(name: str, answer: WireAnswer, world: ConformanceWorld) -> Iterator[str]:
    first = world.answers[name]
    if answer.status != first.status:
        yield f"status {answer.status}, but {name} had {first.status}"
    if answer.body != first.body:
        yield f"other bytes than {name}: {_shown(answer.body)} against {_shown(first.body)}"
    if answer.header("content-type") != first.header("content-type"):
        yield f"content-type {answer.header('content-type')}, but {name} had {first.header('content-type')}"


def _members(answer: WireAnswer) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _list(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]


def _shown(body: bytes | str) -> str:
    text = body if isinstance(body, str) else body.decode("utf-8", "backslashreplace")
    return repr(text[:SHOWN] + (" …" if len(text) > SHOWN else ""))

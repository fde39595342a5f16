"""JSON that is held exactly: strict parsing (I-JSON, RFC 7493, and more) and the canonical form (RFC 8785).

A value that PostgreSQL, a double or another JSON library would change is refused here, with a pointer to it, before
anything is written.
"""

import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import rfc8785

from idem.outbox.values import json_pointer
from idem.outbox.values.errors import BodyInvalid

MAX_BYTES: Final = 1_048_576
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 100_000
"""Values of one text, the names of members counted too: what costs is their number, not their length."""
MAX_INTEGER: Final = 2**53 - 1
MAX_DIGITS: Final = 1000
"""Characters of one number: a double has 17 digits that count, and an exact one in full has fewer than 800."""

UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
BRACKETS: Final = re.compile(r"[\[\]{}]")

PLAIN: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))

TOO_BIG: Final = "a whole number outside ±9007199254740991 (2^53-1) is not exact everywhere: send it as a string"


@dataclass(frozen=True, slots=True)
class Culprit:
    """Stands in the parsed tree where something is wrong, because the parser's hooks do not know where they are."""

    message: str
    member: str | None = None


def parse(body: bytes, *, limit: int = MAX_BYTES, depth: int = MAX_DEPTH, values: int = MAX_VALUES) -> Any:
    """The value of a JSON text. `limit` in bytes, `depth` in nested arrays and objects, `values` in values and names.

    Numbers that are whole come out as int however they are spelled (1, 1.0, 1e0): they are one number in RFC 8785,
    and the provider's request must not depend on the spelling.

    Raises BodyInvalid, with the JSON pointer of the culprit: not UTF-8, not JSON, a member that appears twice, NaN
    and Infinity, NUL and lone surrogates in values and names, numbers that are not exact; too deep, too large, too
    many.
    """
    if len(body) > limit:
        raise BodyInvalid(f"the body has {len(body)} bytes, more than {limit}")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyInvalid(f"the body is not UTF-8 (byte {error.start})") from None
    check_structure(text, depth, values)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=lambda name: Culprit(f"{name} is not a JSON number"),
        )
    except json.JSONDecodeError as error:
        raise BodyInvalid(f"not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise BodyInvalid(f"nested deeper than {depth}") from None
    check(value, depth=depth)
    return value


def check(value: Any, *, depth: int = MAX_DEPTH) -> None:
    """Refuse a Python value that JSON, a double or PostgreSQL would not hold exactly.

    Allowed are None, bool, int within ±(2^53-1), finite float, str, list, tuple, and dict with str names. Raises
    BodyInvalid with the JSON pointer of the first culprit.
    """
    if not _is_plain(value, depth):
        _inspect(value, (), depth)


def plain(value: Any) -> str | None:
    """The canonical text of a value that `check` finds nothing in; None: it has to be looked at the long way."""
    return PLAIN.encode(value) if _is_plain(value) else None


def canonical(value: Any) -> bytes:
    """The canonical bytes of a JSON value (JCS, RFC 8785). Raises BodyInvalid where it has none."""
    try:
        return PLAIN.encode(value).encode() if _is_plain(value) else rfc8785.dumps(value)
    except RecursionError:
        raise BodyInvalid("nested too deep for a canonical form") from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise BodyInvalid(f"there is no canonical form: {error}") from None


def _is_plain(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether json.dumps, which is written in C, gives the canonical form too, and `check` finds nothing: names in
    ASCII have one order, and only floats are spelled in another way."""
    kind = type(value)
    if kind is str:
        return UNSTORABLE.search(value) is None
    if kind is bool or value is None:
        return True
    if kind is int:
        return bool(-MAX_INTEGER <= value <= MAX_INTEGER)
    if depth <= 0:
        return False
    if kind is dict:
        for name, each in value.items():
            if type(name) is not str or not name.isascii() or "\0" in name or not _is_plain(each, depth - 1):
                return False
        return True
    return kind is list and all(_is_plain(each, depth - 1) for each in value)


def _inspect(value: Any, path: tuple[str | int, ...], depth: int) -> None:
    match value:
        case None | bool():
            return
        case str():
            _check_text(value, path)
        case int():
            if abs(value) > MAX_INTEGER:
                raise BodyInvalid(TOO_BIG, json_pointer.render(path))
        case float():
            if not math.isfinite(value):
                raise BodyInvalid(f"{value} is not a JSON number", json_pointer.render(path))
            if abs(value) > MAX_INTEGER:  # every double beyond 2^53 is a whole number
                raise BodyInvalid(TOO_BIG, json_pointer.render(path))
        case list() | tuple() | dict() if len(path) >= depth:
            raise BodyInvalid(f"nested deeper than {depth}", json_pointer.render(path))
        case list() | tuple():
            for index, item in enumerate(value):
                _inspect(item, (*path, index), depth)
        case dict():
            for name, item in value.items():
                if not isinstance(name, str):
                    raise BodyInvalid(f"the name {name!r} of a member is not a str", json_pointer.render(path))
                _check_text(name, (*path, name))
                _inspect(item, (*path, name), depth)
        case Culprit(message=message, member=member):
            raise BodyInvalid(message, json_pointer.render(path if member is None else (*path, member)))
        case _:
            raise BodyInvalid(
                f"a {type(value).__name__} is not a JSON value: pass it as str or as int of the smallest unit",
                json_pointer.render(path),
            )


def _check_text(text: str, path: tuple[str | int, ...]) -> None:
    found = UNSTORABLE.search(text)
    if found is not None:
        what = "a NUL character" if found[0] == "\x00" else "a lone surrogate"
        raise BodyInvalid(f"{what} cannot be stored", json_pointer.render(path))


def check_structure(text: str, depth: int, values: int) -> None:
    """Refuse what is too deep or has too many values before the parser sees it. Raises BodyInvalid.

    json.loads recurses in C, as deep as the interpreter lets it, and lets no other thread run meanwhile. What is looked
    at here is looked at once, by functions that go through the text from its beginning to its end: a text that is no
    JSON costs no more than one that is. A string that is not closed ends at the end.
    """
    # Without escaped backslashes and quotes, every quote that is left begins or ends a string.
    quotes = text.replace("\\\\", "").replace('\\"', "")
    if quotes.count('"') > 2 * values:
        raise _too_many(values)
    outside = "".join(quotes.split('"')[::2])
    opened = outside.count("[") + outside.count("{")
    if opened + outside.count(",") + outside.count(":") > values:
        raise _too_many(values)
    level = 0
    for bracket in BRACKETS.finditer(outside):  # in many steps: findall is one for all of them
        level += 1 if bracket[0] in "[{" else -1
        if level > depth:
            raise BodyInvalid(f"nested deeper than {depth}")


def _too_many(values: int) -> BodyInvalid:
    return BodyInvalid(f"more than {values} values and names of members")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Culprit:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            break
        seen.add(name)
    return Culprit("a member appears twice", name)


def _integer(text: str) -> int | Culprit:
    # The length first: int() of thousands of digits is slow, and refused by the interpreter with another error.
    return int(text) if len(text) <= 17 and abs(int(text)) <= MAX_INTEGER else Culprit(TOO_BIG)


def _number(text: str) -> int | float | Culprit:
    if len(text) > MAX_DIGITS:
        return Culprit(f"a number of more than {MAX_DIGITS} characters: send it as a string")
    double = float(text)
    try:
        exact = math.isfinite(double) and Decimal(text) == Decimal(repr(double))
    except InvalidOperation:  # an exponent of 20 digits
        exact = False
    if not exact:
        return Culprit("a number that a double does not hold exactly: send it as a string")
    if abs(double) > MAX_INTEGER:
        return Culprit(TOO_BIG)
    return int(double) if double.is_integer() else double


def plain_json(value: Any) -> Any:
    """The value, if it is one of JSON: TOML has dates and infinities too. Raises ValueError."""
    try:
        check(value)
    except BodyInvalid as error:
        raise ValueError(f"{error}; it must be a JSON value") from None
    return value

"""JSON as idem sends and stores it.

Not RFC 8785 (`canonical`): that has no form for a provider's 64-bit ids, which must keep their digits.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from idem.outbox.values import json_pointer

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encoded(value: Any) -> bytes:
    """UTF-8, without spaces and without escapes of non-ASCII characters. Raises ValueError, and a
    TypeError that names the member.
    """
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except TypeError:
        for path, kind in _foreign(value, ()):
            where = f"the member {json_pointer.render(path)}" if path else "the value"
            raise TypeError(f"{where} is a {kind}, which JSON does not have: write it as text, e.g. str(…)") from None
        raise


def _foreign(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where the value has a type that JSON does not have, and its name."""
    match value:
        case dict() | list() | tuple():
            for name, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _foreign(item, (*path, name))
        case None | str() | int() | float():
            pass
        case _:
            yield path, type(value).__name__

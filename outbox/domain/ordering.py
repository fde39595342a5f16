"""The ordering key of a request: what has one (tenant, group, key) runs one at a time, in the order of its accepts.

`idem.ordering_key_of` in SQL does the same; tests hold both against each other.
"""

from typing import Any

from idem.outbox.values import json_pointer
from idem.outbox.values.errors import ConfigError, ParamsInvalid

MOST = 255
"""Characters of an ordering key."""


def key_of(operation: str, params: Any, pointer: str | None, given: str | None) -> str | None:
    """The ordering key of a request: of the field of the params at `pointer`, where the operation names one, else the
    given one; None: none.

    Raises ParamsInvalid for a field without a usable value, and ConfigError for a given key that is not usable.
    """
    if given is not None:
        check(operation, given)
    if pointer is None:
        return given
    found = _text(json_pointer.resolve(params, json_pointer.parse(pointer)))
    if found is None:
        what = f"the ordering key of this operation is a text of 1 to {MOST} characters or a whole number"
        raise ParamsInvalid([(pointer, what)])
    if given is not None and given != found:
        raise ConfigError(
            f'operations."{operation}": it takes its ordering key from its params at {pointer}, and another one was '
            "given: leave ordering_key out"
        )
    return found


def check(operation: str, given: object) -> None:
    """Raises ConfigError for an ordering key that is not usable."""
    if not isinstance(given, str):
        raise ConfigError(f'operations."{operation}": an ordering key is text, not {type(given).__name__}')
    if not 1 <= len(given) <= MOST or "\0" in given or any("\ud800" <= c <= "\udfff" for c in given):
        raise ConfigError(
            f'operations."{operation}": an ordering key has 1 to {MOST} characters, without NUL and lone surrogates: '
            "name what the order is of by its id, e.g. that of the customer"
        )


def _text(value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and 1 <= len(value) <= MOST else None

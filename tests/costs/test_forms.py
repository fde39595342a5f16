"""A form is counted while it is written: what small params could make of it is refused before it is made."""

import tracemalloc
from typing import Any

import pytest

from idem.errors import Unrenderable
from idem.outbox.providers.body_encoding import MOST, encoded

LONG = "n" * 44_000


def nested(depth: int) -> Any:
    value: Any = [1] * 9000
    for _ in range(depth):
        value = {"a" * 100: value}
    return value


@pytest.mark.parametrize(
    "metadata",
    [
        {LONG: [1] * 9900},
        {LONG: {str(number): "x" for number in range(9900)}},
        {LONG: [[]] * 9900},
        {LONG: [{}] * 9900},
        {"名" * 15_000: [1] * 9900},
        {str(number): LONG for number in range(100)},
        nested(60),
    ],
    ids=["list", "object", "empty lists", "empty objects", "wide characters", "values", "deep"],
)
def test_it_is_refused_before_it_takes_the_memory(metadata: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Unrenderable, match=f"more than {MOST} bytes"):
            encoded({"metadata": metadata}, "form")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MOST


def test_a_json_body_has_the_same_limit() -> None:
    with pytest.raises(Unrenderable, match=f"more than {MOST} bytes"):
        encoded({"a": "x" * MOST}, "json")


def test_what_fits_is_written_as_before() -> None:
    content = {"a": {"b": [1, {"c": "d e"}], "n": None, "t": True}, "e": None, "f": 1.5}
    assert encoded(content, "form") == b"a%5Bb%5D%5B0%5D=1&a%5Bb%5D%5B1%5D%5Bc%5D=d+e&a%5Bt%5D=true&f=1.5"

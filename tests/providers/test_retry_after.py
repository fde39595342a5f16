from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers.fix_bank import answered, bank, error

from idem.outbox.providers.errors import retry_after
from idem.outcomes import Ambiguous, NotExecuted

NOW = 784111777.0
"""Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 5 ", 5.0),
        ("999999", 3600.0),
        ("9" * 5000, 3600.0),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Sun, 06 Nov 2094 08:00:00 GMT", 3600.0),
        ("-1", None),
        ("1.5", None),
        ("5s", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Xxx 1994 08:49:37 GMT", None),
        ("1994-11-06T08:50:37Z", None),
    ],
)
def test_both_forms_are_read_and_garbage_is_ignored(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}, 3600, NOW) == seconds


def test_a_date_is_compared_with_the_answers_own_clock() -> None:
    headers = {"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT", "date": "Sun, 06 Nov 1994 08:50:27 GMT"}
    assert retry_after(headers, 3600, NOW + 1e6) == 10.0


@given(st.text(max_size=40) | st.from_regex(r"\A[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\Z"))
def test_nothing_parks_a_row_or_raises(text: str) -> None:
    seconds = retry_after({"retry-after": text, "date": text}, 3600)
    assert seconds is None or 0 <= seconds <= 3600


@pytest.mark.parametrize("asked", ["120", "Sun, 06 Nov 1994 08:51:37 GMT"])
def test_it_excuses_nobody_but_a_limiter_that_stands_before_execution(asked: str) -> None:
    """A 503 with it may come from a proxy that has handed the request on."""
    throttles = replace(bank().contract, throttles_before_execution=True)
    headers = {"Retry-After": asked, "Date": "Sun, 06 Nov 1994 08:49:37 GMT"}
    for body in (b"", error()):
        assert bank(contract=throttles).classify(answered(503, body, **headers))[0] == Ambiguous()
        assert bank(contract=throttles).classify(answered(429, body, **headers))[0] == NotExecuted("throttled", 120.0)
        assert bank().classify(answered(429, body, **headers))[0] == Ambiguous()

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.values import durations


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("10d", 864000.0),
        ("1.5h", 5400.0),
        (" 3 s ", 3.0),
        ("7", 7.0),
        (7, 7.0),
        (0.5, 0.5),
        (0, 0.0),
    ],
)
def test_durations_as_people_write_them(written: object, seconds: float) -> None:
    assert durations.parse(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "s", "5x", "-1s", "1e3s", "5 s s", "٣s", -1, float("inf"), float("nan"), True, None]
)
def test_other_forms_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(written)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.25, "250ms"), (90, "90s"), (120, "2m"), (86400, "1d"), (0.0001, "0.0001s")]
)
def test_the_shortest_spelling(seconds: float, text: str) -> None:
    assert durations.text(seconds) == text


@given(st.integers(0, 10**9).map(lambda thousandths: thousandths / 1000) | st.floats(1e-4, 1e9))
def test_what_is_written_reads_back(seconds: float) -> None:
    assert durations.parse(durations.text(seconds)) == seconds

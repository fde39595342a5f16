"""What metrics and log lines cost where nobody reads them, in counts: look-ups of series, and lines put together."""

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client.metrics import MetricWrapperBase

from idem.outbox.observe import after_commit, logs, telemetry
from idem.outbox.observe.after_commit import Moved, moved

INTENT = uuid4()
DONE = Moved(
    "tenant", "pay.keyed", "key-1", INTENT, 1, "worker", "settled", "in_progress", "completed", "claimed", None,
    "keyed", "keyed", "succeeded", 0.1,
)  # fmt: skip


def job() -> None:
    """Every event of a call that succeeds."""
    telemetry.claimed("keyed", "keyed", 1)
    telemetry.rows_claimed([("pay.keyed", INTENT, 1)])
    telemetry.called("keyed", "keyed", INTENT, 1, "succeeded", 0.02)
    telemetry.reported(INTENT, 1, "succeeded", "settled")
    telemetry.settled_together(1)
    moved(DONE)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How often the library has looked up a series, and how many keys were hashed for a line."""
    found = {"labels": 0, "hashes": 0}
    labels, key_hash = MetricWrapperBase.labels, after_commit.key_hash

    def looked_up(metric: Any, *values: Any, **named: Any) -> Any:
        found["labels"] += 1
        return labels(metric, *values, **named)

    def hashed(key: str) -> str:
        found["hashes"] += 1
        return key_hash(key)

    monkeypatch.setattr(MetricWrapperBase, "labels", looked_up)
    monkeypatch.setattr(after_commit, "key_hash", hashed)
    yield found


def test_the_second_job_looks_up_no_series_and_puts_no_line_together(counted: dict[str, int]) -> None:
    telemetry.set_up(json=True, level="warning")
    job()
    counted.update(labels=0)
    job()
    assert counted == {"labels": 0, "hashes": 0}


def test_a_level_that_is_on_is_written(counted: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.set_up(json=True, level="debug")
    job()
    assert counted["hashes"] == 1
    assert capsys.readouterr().err.count("\n") == 3, "claimed, called, and moved"


def test_where_another_program_filters_every_line_is_put_together() -> None:
    import structlog

    telemetry.set_up(json=True, level="error")
    assert not logs.shows(logging.INFO)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    assert logs.shows(logging.INFO)

"""CPU of the metrics and log lines of one call, from its claim to its end, in microseconds, with lines at warning.

    .venv/bin/python tests/measure/telemetry.py [JOBS]

It prints one line of JSON: of each event, and of the job that has them all.
"""

import json
import sys
import time
from collections.abc import Callable
from uuid import uuid4

from idem.outbox.observe import telemetry
from idem.outbox.observe.after_commit import Moved, moved

INTENT = uuid4()
DONE = Moved(
    "tenant", "pay.keyed", "key-1", INTENT, 1, "worker", "settled", "in_progress", "completed", "claimed", None,
    "keyed", "keyed", "succeeded", 0.1,
)  # fmt: skip
EVENTS: dict[str, Callable[[], None]] = {
    "claimed": lambda: telemetry.claimed("keyed", "keyed", 1),
    "rows_claimed": lambda: telemetry.rows_claimed([("pay.keyed", INTENT, 1)]),
    "called": lambda: telemetry.called("keyed", "keyed", INTENT, 1, "succeeded", 0.02),
    "reported": lambda: telemetry.reported(INTENT, 1, "succeeded", "settled"),
    "moved": lambda: moved(DONE),
    "passed": lambda: telemetry.passed("worker", "claim", "keyed", "keyed"),
}


def main(jobs: int) -> None:
    telemetry.set_up(json=True, level="warning")
    found = {}
    for name, event in EVENTS.items():
        event()
        began = time.process_time()
        for _ in range(jobs):
            event()
        found[name] = (time.process_time() - began) / jobs * 1e6
    found["job"] = sum(found.values()) - found["passed"]
    sys.stdout.write(json.dumps({name: round(value, 2) for name, value in found.items()}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)

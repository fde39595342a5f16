"""The start of a worker: CPU seconds and seconds from its exec to its first claim, and the statements before it.

    .venv/bin/python tests/measure/start.py [TIMES]

It prints one line of JSON, medians. The first start is not counted: it compiles, and reads from the disk.
"""

import json
import statistics
import sys
import time

from daemons import Installation, cpu, installation, running, until


def once(at: Installation) -> tuple[float, float, int]:
    since, began = at.note(), time.monotonic()

    def texts() -> bytes:
        with at.log.open("rb") as file:
            file.seek(since)
            return file.read()

    with running(at, "worker", "run") as pid:
        until(lambda: b"'claimed'" in texts(), 60, 0.01)
        used, took = cpu(pid), time.monotonic() - began
        found = at.statements(since)
    return used, took, sum(sum(each.values()) for name, each in found.items() if name.startswith("idem"))


def main(times: int) -> None:
    with installation(statements=True) as at:
        starts = [once(at) for _ in range(times + 1)][1:]
    used, took, statements = (round(statistics.median(each), 2) for each in zip(*starts, strict=True))
    sys.stdout.write(json.dumps({"cpu_seconds": used, "seconds": took, "statements": statements}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)

"""What each daemon costs while nothing is queued: CPU in percent of a core, and statements a second.

    .venv/bin/python tests/measure/idle.py [SECONDS]

It prints one line of JSON: of each daemon the two figures, and its statements by how they begin (a minute). The
daemons run with the default settings and one lane, one process each. Statements are what the server logs.
"""

import contextlib
import json
import sys
import time

from daemons import cpu, installation, running, until
from fix_sql import query

SETTLING = 40.0
"""Seconds after the start that are not counted: what is made once an hour is made in the first half minute."""
KINDS = ("worker", "sweeper", "reconciler", "api")


def main(seconds: float) -> None:
    with installation(statements=True) as at, contextlib.ExitStack() as stack:
        pids = {
            kind: stack.enter_context(running(at, kind, "run", *(("--port", "0") if kind == "api" else ())))
            for kind in KINDS
        }
        until(lambda: query(at.url, "SELECT count(DISTINCT kind) FROM idem.daemons")[0][0] == len(KINDS), 120, 0.5)
        time.sleep(SETTLING)
        since, before = at.note(), {kind: cpu(pid) for kind, pid in pids.items()}
        time.sleep(seconds)
        found = at.statements(since)
        used = {kind: cpu(pid) - before[kind] for kind, pid in pids.items()}
    said = {
        kind: {
            "cpu_percent": round(100 * used[kind] / seconds, 2),
            "statements_per_second": round(sum(found.get(f"idem {kind}", {}).values()) / seconds, 2),
            "per_minute": {
                text: round(number * 60 / seconds, 1) for text, number in found.get(f"idem {kind}", {}).most_common()
            },
        }
        for kind in KINDS
    }  # fmt: skip
    sys.stdout.write(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)

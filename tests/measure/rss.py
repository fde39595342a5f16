"""Memory of a worker that drains intents of an operation that does nothing: megabytes resident, while it does.

    .venv/bin/python tests/measure/rss.py [INTENTS]

It prints one line of JSON: before the first, after each tenth, and the growth over the second half in bytes an intent.
"""

import json
import subprocess
import sys

from daemons import cpu, installation, rss, running, until
from fix_sql import query

ACCEPT = """
SELECT count(a) FROM generate_series(1, %s) AS n,
       LATERAL idem.accept('t', 'nothing.do', 'k' || %s || '-' || n, '{}') AS a
"""


def main(intents: int) -> None:
    part, seen = intents // 10, []
    with installation(application=True) as at, running(at, "worker", "run") as pid:
        subprocess.run([sys.executable, "-m", "idem.cli.main", "db", "sync", "--json"], env=at.environment, check=True)
        until(lambda: bool(query(at.url, "SELECT FROM idem.daemons WHERE kind = 'worker'")), 60)
        seen.append(round(rss(pid), 1))
        before = cpu(pid)
        for number in range(10):
            query(at.url, ACCEPT, (part, str(number)))
            until(lambda: not query(at.url, "SELECT FROM idem.outbox LIMIT 1"), every=0.2)
            seen.append(round(rss(pid), 1))
        used = cpu(pid) - before
    growth = (seen[10] - seen[5]) * 1e6 / (intents / 2)
    said = {"rss_mb": seen, "bytes_an_intent": round(growth, 1), "cpu_us_an_intent": round(used / intents * 1e6)}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)

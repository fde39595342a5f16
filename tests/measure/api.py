"""What accept and replay cost over HTTP: microseconds of CPU a request, of the API's process and of PostgreSQL.

    .venv/bin/python tests/measure/api.py [REQUESTS [CONNECTIONS]]

A real PostgreSQL, `idem api run` and `idem worker run` with an idem.toml, and clients in a process of their own. It
prints one line of JSON. To compare two trees, run it in each in turn, several times, and compare the medians; requests
a second and latencies say something on a quiet machine only. Commits without fsync: disks are not measured.
"""

import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import api_load
import fix_database
from fix_sql import query

from idem.outbox.database import session
from idem.outbox.database.address import Address
from idem.outbox.tenants import tokens

CONFIGURATION = Path(__file__).parent.with_name("desk_configuration.toml").read_text()
OPERATION = "pay.keyed"
BODY = b'{"amount": 100, "customer": "cus_12345", "note": "the third of May", "lines": [1, 2, 3]}'
KNOWN = 200
"""Keys that are completed, and asked for again and again."""

TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid: int, *, children: bool = False) -> float:
    """CPU seconds of a process; with `children` those that it has and had too."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(words[11]) + int(words[12])) / TICK
    if children:
        used += (int(words[13]) + int(words[14])) / TICK
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError):
                used += cpu(int(child))
    return used


@contextlib.contextmanager
def provider() -> Iterator[int]:
    """The port of a provider, in a thread of this process."""
    loop, up, port = asyncio.new_event_loop(), threading.Event(), []
    task = loop.create_task(api_load.provider(up, port))  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])))
    thread.start()
    up.wait()
    try:
        yield port[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


@contextlib.contextmanager
def process(folder: Path, url: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`idem …` over this database, in a folder with its idem.toml."""
    environment = {**os.environ, "IDEM_DATABASE_URL": url, "BANK_TOKEN": "t"}
    command = [str(Path(sys.executable).with_name("idem")), *words, "--log", "json", "--log-level", "warning"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        try:
            yield running
        finally:
            running.terminate()


def address(api: subprocess.Popen[bytes]) -> tuple[str, int]:
    """Where the API listens, as it says itself."""
    assert api.stdout is not None
    for line in api.stdout:
        if found := re.search(rb"http://([0-9.]+):([0-9]+)", line):
            threading.Thread(target=api.stdout.read, daemon=True).start()
            return found[1].decode(), int(found[2])
    raise RuntimeError("the API did not start")


def until_settled(url: str, keys: int) -> None:
    """Wait until so many keys are completed."""
    for _ in range(600):
        if query(url, "SELECT count(*) FROM idem.idempotency_keys WHERE state = 'completed'") == [(keys,)]:
            return
        time.sleep(0.1)
    raise RuntimeError("the worker did not complete the keys")


async def token_of(url: str) -> str:
    async with await session.connect(Address.of(url), name="idem measure") as connection:
        return (await tokens.create(connection, "t", "measure"))[1]


def statements(log: Path, since: int, requests: int) -> dict[str, float]:
    """Statements a request in the server's log since this byte, by their first words."""
    with log.open("rb") as file:
        file.seek(since)
        found = re.findall(rb"(?:execute [^:]*|statement):[ \t\n]*(\w*)", file.read())
    return {word.decode() or "(empty)": round(number / requests, 3) for word, number in Counter(found).items()}


def main(requests: int, connections: int) -> None:
    report: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(fix_database.server())
        url = stack.enter_context(fix_database.clone(server, stack.enter_context(fix_database.template(server))))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = CONFIGURATION.replace("ORIGIN", f"http://127.0.0.1:{stack.enter_context(provider())}")
        (folder / "idem.toml").write_text(settings)
        token = asyncio.run(token_of(url))
        data, postmaster = query(url, "SELECT current_setting('data_directory'), "
                                      "split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int")[0]  # fmt: skip
        log = next(each for each in (Path(data) / "pg.log", Path(data).parent / "pg.log") if each.exists())
        clients = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        api = stack.enter_context(process(folder, url, "api", "run", "--port", "0"))
        at = address(api)

        def asked(keys: list[str], what: bytes) -> tuple[float, list[float]]:
            sent = [api_load.request(OPERATION, token, key, BODY) for key in keys]
            took, seconds, statuses = clients.submit(api_load.ask, at, sent, connections).result()
            assert set(statuses) == {what}, Counter(statuses)
            return took, seconds

        def measured(name: str, keys: list[str], more: list[str], what: bytes) -> None:
            own, theirs = cpu(api.pid), cpu(postmaster, children=True)
            took, seconds = asked(keys, what)
            own, theirs = cpu(api.pid) - own, cpu(postmaster, children=True) - theirs
            query(server, "ALTER SYSTEM SET log_statement = 'all'")
            query(server, "SELECT pg_reload_conf()")
            time.sleep(0.5)
            since = log.stat().st_size
            asked(more, what)
            query(server, "ALTER SYSTEM RESET log_statement")
            query(server, "SELECT pg_reload_conf()")
            time.sleep(0.5)
            cuts = statistics.quantiles(seconds, n=100)
            report[name] = {
                "requests_a_second": round(len(keys) / took), "api_us": round(own / len(keys) * 1e6),
                "postgresql_us": round(theirs / len(keys) * 1e6), "p50_ms": round(cuts[49] * 1000, 1),
                "p99_ms": round(cuts[98] * 1000, 1), "statements": statements(log, since, len(more)),
            }  # fmt: skip

        known = [f"known-{number}" for number in range(KNOWN)]
        asked(known, b"202")
        with process(folder, url, "worker", "run"):
            until_settled(url, KNOWN)
        query(url, "VACUUM ANALYZE")
        asked([f"warm-{number}" for number in range(500)], b"202")
        asked(known, b"201 repeated")
        measured("accept", [f"key-{n}" for n in range(requests)], [f"more-{n}" for n in range(500)], b"202")
        measured("replay", [known[n % KNOWN] for n in range(requests)], known, b"201 repeated")
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(*(int(word) for word in (*sys.argv[1:], *("6000", "16")[len(sys.argv) - 1 :])))

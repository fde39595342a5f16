"""The API does what its own description says: generated requests, in sequence, with the database away in the middle.

`IDEM_TEST_EXAMPLES=1500` with `IDEM_API_SEED` 1, 2, 3, 4 makes about five thousand cases for each seed.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import jsonschema
import pytest
from fix_api import Client
from fix_line import Line, through_a_line
from fix_spine import Spine, catalogue, operation
from fix_waiting import stopping

from idem.outbox.api import openapi
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.config.params_validation import validator
from idem.outbox.database.pool import Database
from idem.outbox.domain.problem_catalogue import PROBLEMS

EXAMPLES = int(os.environ.get("IDEM_TEST_EXAMPLES", "6"))
"""Generated requests of each operation and phase."""

SEED = ["--seed", os.environ["IDEM_API_SEED"]] if "IDEM_API_SEED" in os.environ else ["--generation-deterministic"]

CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance"


class Service:
    """An API in a loop of its own thread, because the generator of requests is synchronous."""

    def __init__(self, url: str, bank: str) -> None:
        self._started: Future[tuple[Client, Line]] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(url, bank),))

    def __enter__(self) -> tuple[Client, Line]:
        self._thread.start()
        return self._started.result(30)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    async def _run(self, url: str, bank: str) -> None:
        database = Database(url, name="idem-test")
        await database.open()
        schema = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}}
        paying = operation("pay.keyed", "keyed", schema=schema, validate=validator(schema))
        known = catalogue(bank, **{"pay.keyed": paying})
        async with stopping(database):
            # No worker runs: whoever asks to wait waits to the end.
            spine = Spine(database, None, known, None, url)  # type: ignore[arg-type]
            async with through_a_line(spine, wait_cap=0.3) as started:
                self._started.set_result(started)
                await self._stop.wait()


@pytest.fixture
def service(db_url: str) -> Iterator[tuple[Client, Line]]:
    with Service(db_url, "http://127.0.0.1:9") as started:
        yield started


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_no_undocumented_answer_and_no_500(service: tuple[Client, Line], tmp_path: Path) -> None:
    """Examples, edge cases, generated requests and sequences of them; with the database away now and then."""
    client, line = service
    report = tmp_path / "report.json"
    command = [
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run",
        f"{client.url}/openapi.json", "-H", f"Authorization: Bearer {client.token}", "--max-examples", str(EXAMPLES),
        "--checks", CHECKS, *SEED, "--continue-on-failure",
        "--report-json-path", str(report), "--warnings", "off", "--no-color",
        "--suppress-health-check", "all", "--request-timeout", "30",
    ]  # fmt: skip
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said: list[str] = []
    reading = threading.Thread(target=lambda: said.extend(running.stdout or ()))
    reading.start()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(8 if EXAMPLES < 100 else 30)
            break
        line.down = True
        time.sleep(0.5)
        line.down = False
    reading.join()
    text = "".join(said)
    assert running.returncode == 0, text[-8000:]
    sys.stderr.write("".join(said[-12:]))


def test_the_description_is_openapi_3_1_with_examples_that_are_taken(spine: Spine) -> None:
    """Every operation's example is one that its own schema takes, and every code is a problem that exists."""
    members = {"amount": {"type": "integer", "minimum": 5}, "to": {"enum": ["a", "b"]}, "note": {"type": "string"}}
    schema = {"type": "object", "required": ["amount", "to"], "properties": members}
    described = operation("pay.described", "keyed", schema=schema)
    known = type(spine.catalogue)("test", spine.catalogue.providers, {"pay.described": described})
    document = openapi.document(known, ApiSettings())
    assert document["openapi"] == "3.1.0"
    asking = document["paths"]["/v1/intents/pay.described"]["post"]
    jsonschema.validate(asking["requestBody"]["content"]["application/json"]["example"], schema)
    for path in document["paths"].values():
        for each in path.values():
            for status, response in each.get("responses", {}).items() if isinstance(each, dict) else ():
                for content in response["content"].values():
                    for code, shown in content.get("examples", {}).items():
                        assert str(shown["value"]["status"]) == status
                        assert code in PROBLEMS

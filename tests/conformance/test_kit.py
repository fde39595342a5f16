"""The kit itself: its cases are whole, and a server that does wrong fails them."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conformance.idem_driver import IdemDriver
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from idem.outbox.domain.problem_catalogue import PROBLEMS
from idem.outbox.http_server.serving import serve
from idem.testing.conformance import CaseError, Runner, Target, load, rows
from idem.testing.conformance.cases import files, read, schema
from idem.testing.conformance.driver import STEPS

ROOT = Path(__file__).parent.parent.parent
CASES = load()


def table_of_the_design() -> list[str]:
    """The requests of the HTTP table, without the marks of their code."""
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    table = text.partition("| request | answer |\n| --- | --- |\n")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ").replace("`", "") for line in table.splitlines()]


def test_the_rows_are_those_of_the_design() -> None:
    assert list(rows().values()) == table_of_the_design()


def test_every_row_has_a_case() -> None:
    assert {case.row for case in CASES} == set(rows())


def expectations() -> list[dict[str, Any]]:
    return [dict(ask.get("expect", {})) for case in CASES for ask in case.asks]


def test_every_problem_has_a_case() -> None:
    named = {expected["problem"] for expected in expectations() if "problem" in expected}
    # No request brings these about alone (an operator pauses, many webhooks come at once). That their pages are there
    # is a case of its own.
    assert named == set(PROBLEMS) - {"internal_error", "paused", "too_many_bodies"}


def test_every_step_that_a_case_needs_is_known_and_can_be_done_to_idem() -> None:
    needed = {step for case in CASES for step in case.steps()}
    assert needed == set(STEPS)
    assert not [step for step in needed if not hasattr(IdemDriver, step)]


def test_the_schema_is_one_and_the_files_follow_it() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    for file in files():
        jsonschema.validate(json.loads(file.read_text("utf-8")), schema())
        assert f'"group": "{file.name.removesuffix(".json")}"' in file.read_text("utf-8")


def test_a_file_with_a_mistake_is_refused_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    case = {"name": "x", "row": "ask", "request": {}, "expect": {"status": 202}}
    file.write_text(json.dumps({"group": "mine", "about": "mine", "cases": [case]}))
    assert [each.id for each in read(file)] == ["mine/x"]
    for wrong in ({"row": "nothing"}, {"given": ["nothing"]}, {"expect": {}}, {"expect": {"stauts": 202}}):
        file.write_text(json.dumps({"group": "mine", "about": "mine", "cases": [case | wrong]}))
        with pytest.raises(CaseError, match=r"mine\.json at \$\.cases\[0\]"):
            read(file)


def test_every_status_that_a_case_expects_is_one_that_http_knows() -> None:
    statuses = [status for each in expectations() for status in _list(each.get("status", []))]
    assert set(statuses) <= {200, 201, 202, 204, 400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 429, 503}


def test_the_comparison_stands_in_the_docs_and_each_of_its_cells_has_its_cases() -> None:
    text = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    named = set(re.findall(r"`comparison/([a-z0-9-]+)`", text))
    assert named == {case.name for case in CASES if case.group == "comparison"}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# A server that does all wrong -----------------------------------------------------------------------------------


async def _executes_always(request: Request) -> Response:
    await request.body()
    request.app.state.effects += 1
    return JSONResponse({"intent": f"i-{request.app.state.effects}", "state": "done"}, 201)


@asynccontextmanager
async def careless() -> AsyncIterator[Target]:
    """A server without any notion of a key: it answers 201 to everything, and does it again each time."""
    app = Starlette(routes=[Route("/{path:path}", _executes_always, methods=["GET", "POST", "DELETE", "PUT", "PATCH"])])
    app.state.effects = 0
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(app, "127.0.0.1", 0, stop, ready=lambda host, port: listening.set_result(f"http://{host}:{port}"))
    )
    try:
        yield Target(
            await listening, token="t", other_token="o", webhook_secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        )
    finally:
        stop.set()
        await serving


MEETS_BY_CHANCE = {"asking/no-host", "keys/nul", "keys/a-bare-line-feed", "bodies/two-lengths"}
"""What the serving layer and the HTTP library under the careless server refuse by themselves."""


async def test_a_careless_server_passes_nothing() -> None:
    async with careless() as target:
        results = await Runner(target).run(CASES)
    assert {result.case.id for result in results if result.outcome in ("passed", "partly")} <= MEETS_BY_CHANCE
    # And what could not be tried is never counted as passed.
    skipped = [result for result in results if result.outcome == "skipped"]
    assert skipped and all(result.reasons for result in skipped)
    failed = {result.case.id for result in results if result.outcome == "failed"}
    assert {"replay/the-same-bytes", "keys/missing", "bodies/nan", "other-content/the-order-of-a-list"} <= failed


# The command ----------------------------------------------------------------------------------------------------


async def kit(*arguments: str) -> tuple[int | None, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "idem.testing.conformance", *arguments, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.quick
@pytest.mark.process
async def test_the_command_shows_what_failed_and_ends_with_1(tmp_path: Path) -> None:
    async with careless() as target:
        code, out, _ = await kit("--url", target.url, "--token", "t", "--case", "keys/m*")
        assert code == 1
        assert "FAIL  keys/missing" in out
        assert "status 201, expected 400" in out
        code, out, _ = await kit("--url", target.url, "--token", "t", "--case", "keys/missing", "--json")
        (result,) = json.loads(out)
        assert (code, result["outcome"], result["row"]) == (1, "failed", "key")
        mine = tmp_path / "mine.json"
        case = {"name": "all-is-made", "row": "ask", "request": {}, "expect": {"status": 201}}
        mine.write_text(json.dumps({"group": "mine", "about": "mine", "cases": [case]}))
        described = tmp_path / "target.json"
        described.write_text(json.dumps({"url": target.url, "operations": {"pay": "/payments"}, "problems": False}))
        code, out, _ = await kit("--target", str(described), "--file", str(mine), "--case", "mine/*")
        assert (code, out) == (0, "ok    mine/all-is-made\n1 passed, 0 partly, 0 failed, 0 skipped\n")


@pytest.mark.process
async def test_mistakes_are_said_without_a_traceback(tmp_path: Path) -> None:
    wrong = tmp_path / "target.json"
    wrong.write_text('{"adress": "x"}')
    for arguments in (
        [],
        ["--url", "ftp://x"],
        ["--url", "http://127.0.0.1:1", "--driver", "nothing.here:Driver"],
        ["--target", str(wrong)],
        ["--file", str(wrong), "--list"],
    ):
        code, out, err = await kit(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err.startswith("conformance: ") and "Traceback" not in err


async def test_what_could_not_be_counted_is_not_passed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    case = {"name": "all-is-made", "row": "ask", "request": {}, "expect": {"status": 201, "effects": 1}}
    mine.write_text(json.dumps({"group": "mine", "about": "mine", "cases": [case]}))
    async with careless() as target:
        (result,) = await Runner(target).run(read(mine))
    assert (result.outcome, result.reasons) == ("partly", ("effects were not counted",))


@pytest.mark.quick
@pytest.mark.process
async def test_a_server_that_is_not_there_fails_every_case_that_it_could_have_passed() -> None:
    code, out, _ = await kit("--url", "http://127.0.0.1:1", "--case", "process/healthz")
    assert code == 1
    assert "FAIL  process/healthz" in out

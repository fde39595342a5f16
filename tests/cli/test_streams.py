"""Every command keeps its exit code, whatever its streams are, and lets no stranger draw on a terminal."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import layers
import pytest
from fix_commands import ALL
from fix_desk import Desk
from fix_terminal import on_a_terminal

from idem.cli.base.output import text
from idem.outbox.values.terminal import encoded, printable, safe

READ_ONLY = [
    ("status",), ("doctor",), ("dlq", "list"), ("intents", "list"), ("unknowns", "list"), ("unknowns", "export"),
    ("token", "list"), ("tenants", "top"), ("db", "check"), ("db", "current"), ("config", "check"), ("config", "show"),
]  # fmt: skip
"""Those that look at a database and change nothing."""

STARTER = """
import io, json, os, sys
from idem.cli.main import main
import idem.cli.doctor.checks, idem.outbox.config, idem.outbox.database.pool, sqlalchemy, alembic

def stream(number, encoding):
    try:
        return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), encoding=encoding, write_through=False)
    except OSError:
        return None

def prepare(way):
    for number in (1, 2):
        match way[str(number)]:
            case "closed":
                os.close(number)
            case "no reader":
                reader, writer = os.pipe()
                os.close(reader)
                os.dup2(writer, number)
                os.close(writer)
            case "to read":
                os.dup2(os.open(os.devnull, os.O_RDONLY), number)
            case "full":
                os.dup2(os.open("/dev/full", os.O_WRONLY), number)
            case "kept":
                os.dup2(os.open(way["kept"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if way["0"] == "closed":
        os.close(0)
        sys.stdin = None
    sys.stdout, sys.stderr = (stream(number, way["encoding"]) for number in (1, 2))
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr

answers = os.dup(1)
for line in sys.stdin.buffer:
    arguments, way = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            prepare(way)
            code = main(arguments)
            # What an interpreter does at its end.
            for each in (sys.stdout, sys.stderr):
                if each is not None:
                    each.flush()
        except BaseException as error:
            code = 99
            if way.get("kept"):
                import traceback
                open(way["kept"], "a").write(traceback.format_exc())
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(answers, f"{code}\\n".encode())
"""
"""Loads the program once; each command is then a process of its own, with real descriptors."""


@dataclass
class Program:
    """Runs commands. `way`: what standard input (0), output (1) and error (2) are, and the encoding."""

    process: subprocess.Popen[bytes]
    folder: Path

    def code(self, *arguments: str, encoding: str = "utf-8", **way: str) -> int:
        ways = {"0": "kept", "1": "kept", "2": "kept"} | {number[1:]: what for number, what in way.items()}
        kept = self.folder / "kept"
        kept.unlink(missing_ok=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = json.dumps([arguments, ways | {"encoding": encoding, "kept": str(kept)}])
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @property
    def said(self) -> bytes:
        return (self.folder / "kept").read_bytes()


@pytest.fixture
def idem(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    """The program, with the environment of the desk where the test has one."""
    found = request.getfixturevalue("desk").environment if "desk" in request.fixturenames else {}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=inherited | found,
        cwd=tmp_path,
    ) as process:  # fmt: skip
        yield Program(process, tmp_path)
        assert process.stdin is not None
        process.stdin.close()


WAYS = [
    {"_1": "closed"}, {"_2": "closed"}, {"_0": "closed", "_1": "closed", "_2": "closed"}, {"_1": "no reader"},
    {"_2": "no reader"}, {"_1": "to read", "_2": "to read"}, {"_2": "full"},
    {"encoding": "ascii"}, {"encoding": "iso-8859-1"}, {"encoding": "utf-16"},
]  # fmt: skip


def ways(place: int, how_many: int) -> list[dict[str, str]]:
    """Some of them, others for each command: all of them for each would take minutes, and one place serves them all."""
    return [WAYS[(place * how_many + number) % len(WAYS)] for number in range(how_many)]


@pytest.mark.fuzz
@pytest.mark.quick
@pytest.mark.process
def test_every_command_gives_its_help_whatever_its_streams_are(idem: Program) -> None:
    """IB-193 too: replacements where an encoding lacks a letter, and the usual exit code."""
    assert len(ALL) > 40
    for place, path in list(enumerate(ALL))[:: 1 if layers.thorough() else 16]:
        for way in ways(place, 2):
            assert idem.code(*path, "--help", **way) == 0, (path, way, idem.said)
            assert idem.code(*path, "--no-such-option", **way) == 2, (path, way, idem.said)
        assert idem.code(*path, "--help", _1="full") == 1, path
        assert b"cannot write the output" in idem.said


@pytest.mark.process
async def test_every_command_that_looks_keeps_its_exit_code(desk: Desk, idem: Program) -> None:
    await desk.held("k1")
    await desk.unknown("k2")
    for place, path in enumerate(READ_ONLY):
        for more in ((), ("--json",)) if path not in (("unknowns", "export"), ("config", "show")) else ((),):
            usual = idem.code(*path, *more)
            assert usual != 99, idem.said
            assert b"Traceback" not in idem.said
            for way in ways(place + len(more), 2):
                assert idem.code(*path, *more, **way) == usual, (path, more, way, idem.said)


@pytest.mark.process
async def test_a_question_that_nobody_can_answer_changes_nothing(desk: Desk, idem: Program) -> None:
    letter = await desk.letter(await desk.held("k1"), "rejected")
    assert idem.code("dlq", "redrive", str(letter), "--reason", "x", _0="closed") == 1, idem.said
    assert b"nothing was changed" in idem.said


ACTING = "a\x9b2J\x9b31mRED\x9d0;title\x07\u202eevil\u2066\u2028\x1b[2J\x7f\r\u200f\x85é漢"


@pytest.mark.process
async def test_nothing_that_a_client_sent_acts_on_the_terminal(desk: Desk, idem: Program) -> None:
    """S11 of the review: by hand and in --json, where it is escaped and nothing is lost."""
    intent = await desk.pending("k1")
    await desk.spine.execute(
        "UPDATE idem.intents SET params = %s, label = %s WHERE id = %s",
        (json.dumps({"order": ACTING, ACTING: [ACTING]}), ACTING, intent),
    )
    shown = []
    for path in (("intents", "show", "--params", str(intent)), ("intents", "list")):
        assert idem.code(*path) == 0, idem.said
        shown.append(idem.said.decode())
        assert idem.code(*path, "--json") == 0, idem.said
        assert ACTING in json.dumps(json.loads(idem.said), ensure_ascii=False) or ACTING in _texts(
            json.loads(idem.said)
        )
        shown.append(idem.said.decode())
    for output in shown:
        assert all(c.isprintable() or c == "\n" for c in output), [c for c in output if not c.isprintable()]
        assert "é漢" in output


def _texts(data: object) -> set[str]:
    match data:
        case str():
            return {data}
        case dict():
            return {t for each in (*data, *data.values()) for t in _texts(each)}
        case list():
            return {t for each in data for t in _texts(each)}
    return set()


@pytest.mark.fuzz
def test_no_character_that_acts_is_left() -> None:
    """Every character there is, alone and after an escape; `make test` leaves most of the unused ones out."""
    every = [chr(n) for n in range(0x110000) if layers.thorough() or n < 0x3100 or 0xD700 <= n < 0x10000 or n % 61 == 0]
    assert printable("".join(every)).isprintable()
    assert text({"a": "".join(every)}).isprintable()
    shown = encoded({"a": "".join(every)}, default=str)
    assert shown.isprintable()
    whole = "".join(c for c in every if not 0xD800 <= ord(c) < 0xE000)
    assert json.loads(encoded({"a": whole}, default=str)) == {"a": whole}
    assert encoded("é\x9b", default=str, ascii=True) == '"\\u00e9\\u009b"'
    left = safe("".join(every))
    assert {c for c in left if ord(c) < 32 or 127 <= ord(c) < 160} == {"\t", "\n", "\r"}
    assert safe("\x1b[1;31mred\x1b[0m") == "\x1b[1;31mred\x1b[0m", "our own colours"
    assert "\x1b" not in safe("\x1b]0;title\x07 \x1bc \x1b(0 \x1b[5i \x1b[6n")


@pytest.mark.process
async def test_no_color_is_obeyed(desk: Desk) -> None:
    await desk.held("k1")
    assert re.search(rb"\x1b\[[0-9;]*3[0-9]", on_a_terminal(("doctor",), desk.environment)[0]), (
        "it has colours otherwise"
    )
    for path in (("doctor",), ("status",), ("dlq", "list"), ("sweeper", "run", "--once", "--log-level", "debug")):
        written, _ = on_a_terminal(path, desk.environment | {"NO_COLOR": "1"})
        assert not re.search(rb"\x1b\[[0-9;]*[34][0-9]", written), (path, written)


def test_one_place_decides_about_colours() -> None:
    """So that NO_COLOR cannot be forgotten: who styles by hand asks `coloured` first."""
    root = Path(__file__).parents[2]
    for file in [*(root / "cli").rglob("*.py"), *(root / "outbox").rglob("*.py")]:
        source = file.read_text()
        if re.search(r"typer\.(style|secho)|\bfg=|ConsoleRenderer\(", source):
            assert "coloured(" in source, file

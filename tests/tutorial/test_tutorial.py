"""docs/tutorial.md, followed word by word: each block in its order, and what the page says is seen, is seen.

Changed are only the address of the database and the ports. What pip is to install is installed already.
"""

import contextlib
import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from tutorial.page import PAGE, Block, blocks, counted, missing
from tutorial.reader import PATIENCE, Reader

from idem.outbox.http_server.serving import listen

APPLICATION = Path(__file__).parent / "application"
ROOT = Path(__file__).parents[2]
PIP = re.compile(r'pip install "/path/to/idem\[([a-z,]+)\]"( pytest httpx)?')


@pytest.fixture
def reader(tmp_path: Path, new_database: str, server: str) -> Iterator[Reader]:
    """Their application in a folder of its own; neither started nor migrated."""
    folder = tmp_path / "shop"
    shutil.copytree(APPLICATION, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(listen("127.0.0.1", 0)) for _ in range(2)]
        theirs, banks = (str(each.getsockname()[1]) for each in sockets)
    replaced = {
        "postgresql+asyncpg://user:password@localhost:5432/shop": new_database.replace("://", "+asyncpg://", 1),
        "localhost:8000": f"127.0.0.1:{theirs}",
        "localhost:8600": f"127.0.0.1:{banks}",
        "127.0.0.1:8600": f"127.0.0.1:{banks}",
        "--port 8000": f"--port {theirs}",
        "--port 8600": f"--port {banks}",
        'verified = "2026-11-28"': f'verified = "{datetime.now(UTC).date()}"',
    }
    made = Reader(folder, replaced, IDEM_TEST_DATABASE_URL=server)
    yield made
    made.leave()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the reader has curl")
def test_the_page_is_followed(reader: Reader, new_database: str) -> None:
    output, seen, terminal, asked = "", 0, "", None
    for block in blocks():
        if block.language in ("toml", "python"):
            reader.write(block)
        elif block.language == "text":
            if where := terminal_of(block) or terminal:
                reader.sees(where, block.body)
                if "process=worker" in block.body:
                    at_work(new_database)
            else:
                assert asked is not None
                output = reader.until_seen(asked, block.text, output)
            seen += 1
        elif "pip install" in block.text:
            assert PIP.fullmatch(block.text.strip()), block.text
        elif terminal := terminal_of(block):
            reader.begin(block)
        else:
            asked = with_id(block, output)
            output = reader.run(asked)
    assert seen >= 18


AT_WORK = """
SELECT EXISTS (SELECT FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'idem worker' AND query ILIKE 'listen %')
"""


def at_work(url: str) -> None:
    """A person is slower than a process that starts on a busy machine, whose first seconds are its imports."""
    until = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as look:
        while look.execute(AT_WORK).fetchone() != (True,):
            assert time.monotonic() < until, "no worker has come to work"
            time.sleep(0.1)


def terminal_of(block: Block) -> str:
    return block.about.partition(", ")[0] if block.about.startswith("terminal ") else ""


def with_id(block: Block, output: str) -> Block:
    """`idem intents show ID`: the reader takes the id from what was printed before."""
    if not block.text.rstrip().endswith(" ID"):
        return block
    (intent,) = set(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f-]{17}", output))
    return Block(block.language, block.text.replace(" ID", f" {intent}"))


def test_it_says_how_much_the_reader_writes() -> None:
    written: dict[str, int] = {}
    for block in blocks():
        if block.language in ("toml", "python"):
            name = block.about.partition(", ")[0]
            name = "the revision" if name.startswith("alembic/") else name
            written[name] = written.get(name, 0) + block.written
    code = sum(lines for name, lines in written.items() if not name.startswith("tests/"))
    assert counted() == written | {"together": sum(written.values()), "without the tests": code}


def test_what_pip_is_to_install_is_there_to_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [PIP.fullmatch(block.text.strip()) for block in blocks() if "pip install" in block.text]
    assert len(named) == 2
    for found in named:
        assert found is not None and set(found[1].split(",")) <= set(extras)


def test_the_test_in_it_has_twelve_lines() -> None:
    (block,) = (each for each in blocks() if each.about == "tests/test_payments.py")
    assert block.written <= 12


def test_its_links_lead_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGE.read_text()):
        page = PAGE.parent / target if target else PAGE
        assert page.exists(), target
        titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, f"{target}#{anchor}"


def test_a_line_that_is_not_seen_is_missing() -> None:
    output = 'HTTP/1.1 201 Created\nserver: uvicorn\n\n{"payment":"pay_1","status":"succeeded"}'
    assert missing('HTTP/1.1 201 Created\n…\n{"payment":"pay_…","status":"succeeded"}', output) is None
    assert missing("HTTP/1.1 409 Conflict", output) == "HTTP/1.1 409 Conflict"
    assert missing('"status":"succeeded"\nserver', output) == "server"
    assert missing("up to date   True", "up to date    True") is None

"""docs/adopt/flask.md, word by word: its files are laid, its commands run, and what it shows is seen."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from examples.town import IDEM, Town
from tutorial.page import FENCE, missing

PAGE = Path(__file__).parents[2] / "docs" / "adopt" / "flask.md"
FILES = ("idem.toml",)
EVENTS = False


def test_the_page_is_right(town: Town) -> None:
    said = ""
    ran = []
    for language, text in FENCE.findall(PAGE.read_text()):
        first, _, rest = text.partition("\n")
        if language == "python":
            (town.folder / first.removeprefix("# ")).write_text(rest)
        elif language == "text":
            assert (line := missing(text, said)) is None, (line, said)
        elif first == "# beside it":
            (town.serve if "flask" in rest else town.start)(*_command(town, rest))
            # A reader types the next command when the daemons have come up.
            town.until("SELECT count(*) >= 3 AND (SELECT count(*) FROM idem.event_handlers) >= 1 FROM idem.daemons")
        else:
            for line in text.splitlines():
                said = subprocess.run(
                    _command(town, line), cwd=town.folder, env=town.environment, text=True, timeout=60,
                    capture_output=True, check=True,
                ).stdout  # fmt: skip
                ran.append(line)
    assert len(ran) == 4
    assert town.effects() == 1
    town.until("SELECT state = 'paid' FROM orders WHERE id = 1")


def _command(town: Town, line: str) -> list[str]:
    words = shlex.split(re.sub(r"(?<=[: ])5000\b", str(town.port), line))
    programs = {"idem": IDEM, "flask": (IDEM[0], "-m", "flask")}
    return [*programs.get(words[0], words[:1]), *words[1:]]

"""A page of docs/adopt followed word by word: its files are laid, its commands run, and what it shows is seen.

Changed are only ports and the database; the bank of the page is the town's.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from examples.town import IDEM, Town
from tutorial.page import FENCE, missing

PAGES = Path(__file__).parents[2] / "docs" / "adopt"
PROGRAMS = {"idem": IDEM, "flask": (IDEM[0], "-m", "flask"), "python": (sys.executable,)}
SERVERS = ("flask", "python")


def follow(town: Town, page: str) -> list[str]:
    """Everything that the page says; the lines that were run to their end."""
    said, ran = "", []
    for language, text in FENCE.findall((PAGES / page).read_text()):
        first, _, rest = text.partition("\n")
        if language == "python":
            _laid(town.folder / first.removeprefix("# "), rest)
        elif language == "text":
            assert (line := missing(text, said)) is None, (line, said)
        elif first.startswith("export "):
            named = re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", text))
            assert named and set(named) <= set(town.environment), named
        elif first == "# beside it":
            _beside(town, rest.strip())
        else:
            for line in text.splitlines():
                said = subprocess.run(
                    _command(town, line), cwd=town.folder, env=town.environment, text=True, timeout=60,
                    capture_output=True, check=True,
                ).stdout  # fmt: skip
                ran.append(line)
    return ran


def _laid(file: Path, content: str) -> None:
    """A file of the reader's own, or one of the example that the page shows."""
    if file.exists():
        assert file.read_text() == content, f"the page shows another {file.name} than the example has"
    else:
        file.write_text(content)


def _beside(town: Town, line: str) -> None:
    if line.startswith("idem bank run"):
        assert line == "idem bank run --port 8600"
        return
    (town.serve if line.split()[0] in SERVERS else town.start)(*_command(town, line))
    # A reader types the next command when the daemons have come up.
    town.until("SELECT count(*) >= 3 AND (SELECT count(*) FROM idem.event_handlers) >= 1 FROM idem.daemons")


def _command(town: Town, line: str) -> list[str]:
    words = shlex.split(re.sub(r"(?<=[: ])[58]000\b", str(town.port), line))
    return [*PROGRAMS.get(words[0], words[:1]), *words[1:]]

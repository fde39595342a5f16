"""Evidence, dead letters and events are inserted in one module, and by the gate's own statement."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "idem", "outbox", "reconciler", "sweeper", "testing")
WRITERS = {
    "outbox/settle/record.py": "the one module that writes them",
    "outbox/settle/gate.py": "the one statement that moves rows and writes what is on record about that",
    "cli/demo/sabotage.py": "destroys the guarantees on purpose, so that the proof of the demo fails",
}


def test_nothing_else_writes_the_record() -> None:
    insert = re.compile(r"INSERT\s+INTO\s+idem\.(evidence|dead_letters|events)\b", re.IGNORECASE)
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if insert.search(path.read_text())
    }
    assert found == set(WRITERS)

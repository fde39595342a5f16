"""Evidence, dead letters and events are inserted in one module, and by the gate's own statement."""

from fix_source import texts

WRITERS = {
    "outbox/settle/record.py": "the one module that writes them",
    "outbox/settle/gate.py": "the one statement that moves rows and writes what is on record about that",
    "cli/demo/sabotage.py": "destroys the guarantees on purpose, so that the proof of the demo fails",
}


def test_nothing_else_writes_the_record() -> None:
    insert = r"(?i)INSERT\s+INTO\s+idem\.(evidence|dead_letters|events)\b"
    assert {path for path, _ in texts(holding=insert)} == set(WRITERS)

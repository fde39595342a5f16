"""Evidence, dead letters and events are inserted by the modules and SQL functions that are listed here."""

import re

from fix_source import texts

INSERT = r"(?i)INSERT\s+INTO\s+idem\.(evidence|dead_letters|events)\b"
WRITERS = {
    "outbox/settle/record.py": "the one module that writes them",
    "outbox/settle/gate.py": "the one statement that moves rows and writes what is on record about that",
    "outbox/settle/commonest.py": "the same for the commonest end, as narrow as it can be",
    "outbox/settle/order.py": "the part of that statement, and of the sweeper, that promotes the next row",
    "cli/demo/sabotage.py": "destroys the guarantees on purpose, so that the proof of the demo fails",
}
FUNCTIONS = {"accept_key", "queue_call", "complete", "client_retry", "begin_inline", "begin_step", "approve"}


def test_nothing_else_writes_the_record() -> None:
    assert {path for path, _ in texts(holding=INSERT)} == set(WRITERS)


def test_only_accept_the_clients_retry_an_inline_call_and_an_approval_write_it_in_sql() -> None:
    sql = "".join(text for _, text in texts("migrations", suffixes=(".sql",)))
    functions = sql.split("CREATE FUNCTION idem.")[1:]
    assert {each.partition("(")[0] for each in functions if re.search(INSERT, each)} == FUNCTIONS

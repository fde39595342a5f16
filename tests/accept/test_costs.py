"""What an accept costs the database, in statements, calls of functions, reads and rows. Never in time."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from accept.shop import Shop
from fix_database import ENVIRONMENT
from producers.application import accept as accept_by_sql
from producers.application import synced
from schema.backlog import forget_statistics
from sqlalchemy import Connection, event, text

from idem.decisions import Accepted, Replay
from idem.outbox.domain.catalogue import Catalogue

CHECKED = {"check_key": 1, "check_intent": 1, "check_row": 1}
"""The rules of the three rows of a new call."""
CALLS = """
SELECT s.funcname, s.calls FROM pg_stat_xact_user_functions s JOIN pg_proc p ON p.oid = s.funcid
 WHERE s.schemaname = 'idem' AND p.prorettype <> 'trigger'::regtype
"""
READ = "SELECT relname, seq_scan, coalesce(idx_scan, 0) FROM pg_stat_xact_user_tables WHERE schemaname = 'idem'"
WRITTEN = """
SELECT relname, n_tup_ins, n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables
 WHERE schemaname = 'idem' AND n_tup_ins + n_tup_upd + n_tup_del > 0
"""


class Counting:
    """An open transaction whose statements, calls and reads are counted, from `begin` on."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.statements: list[str] = []
        event.listen(connection, "before_cursor_execute", self._note)
        connection.execute(text("SET LOCAL track_functions = 'all'"))
        # The session has not passed on yet what its transactions before this one have counted.
        self._before = {query: self._all(query) for query in (CALLS, READ, WRITTEN)}
        self.statements.clear()

    def _note(self, _: Any, cursor: Any, statement: str, *rest: Any) -> None:
        self.statements.append(statement)

    def _all(self, query: str) -> dict[str, tuple[int, ...]]:
        return {name: tuple(counts) for name, *counts in self.connection.execute(text(query))}

    def _counted(self, query: str) -> dict[str, tuple[int, ...]]:
        before = self._before[query]
        counts = {
            name: tuple(now - then for now, then in zip(found, before.get(name, [0] * len(found)), strict=True))
            for name, found in self._all(query).items()
        }
        return {name: found for name, found in counts.items() if any(found)}

    def calls(self) -> dict[str, int]:
        return {name: calls for name, (calls,) in self._counted(CALLS).items()}

    def read(self) -> dict[str, tuple[int, ...]]:
        """Scans of a whole table and of its indexes, of what was read."""
        return self._counted(READ)

    def written(self) -> dict[str, tuple[int, ...]]:
        """Rows that were added, and rows that were changed."""
        return self._counted(WRITTEN)


@pytest.fixture
def counting(shop: Shop) -> Iterator[Counting]:
    # Tests before this one have emptied the tables; with statistics of that, one page is read whole, as it should be.
    forget_statistics(shop.url)
    # What a connection reads once of each catalogue it has read.
    with shop.open() as connection:
        for number in range(6):
            shop.accept(connection, f"before{number}")
        connection.commit()
        yield Counting(connection)


TABLES = ("idempotency_keys", "intents", "outbox", "requests", "evidence", "decisions_to_count")
ONE_EACH = dict.fromkeys(TABLES, (1, 0))


def test_a_new_key_is_one_statement_that_reads_nothing_whole(shop: Shop, counting: Counting) -> None:
    assert isinstance(shop.accept(counting.connection), Accepted)
    assert len(counting.statements) == 1
    assert counting.calls() == {"accept": 1, "accept_key": 1, **CHECKED}
    assert counting.written() == ONE_EACH
    # The installation is one row.
    assert {table for table, (whole, _) in counting.read().items() if whole} == {"installation"}


def test_a_replay_is_one_probe_of_the_key(shop: Shop, counting: Counting) -> None:
    accepted = shop.accepted()
    shop.put(accepted.intent_id, "completed", None)
    assert isinstance(shop.accept(counting.connection), Replay)
    assert len(counting.statements) == 1
    assert counting.calls() == {"accept": 1, "accept_key": 1, "decide": 1, "count_decision": 1}
    assert counting.read() == {"idempotency_keys": (0, 1)}
    assert counting.written() == {"decisions_to_count": (1, 0)}


def test_by_sql_plain_params_take_the_short_ways(shop: Shop) -> None:
    """Params without an escape, a fraction or anything that looks like card data; and what each of them costs more."""
    synced(shop.url, Catalogue(ENVIRONMENT, shop.acceptor.providers, shop.acceptor.operations))
    plain = {"amount": 100, "currency": "eur"}
    usual = {"accept": 1, "accept_key": 1, "may_produce": 1, "jcs": 1, "jcs_value": 1, **CHECKED}
    costs: dict[str, tuple[Any, dict[str, int]]] = {
        "plain": (plain, {}),
        "a list in it": ({**plain, "items": [1, 2, 3]}, {"jcs_value": 2}),
        "a fraction": ({**plain, "rate": 1.5}, {"jcs_value": 4, "jcs_number": 2, "significant_digits": 2}),
        "an escape": ({**plain, "note": 'a"b'}, {"jcs_value": 4, "jcs_number": 1, "card_data": 1}),
        "a long number": ({**plain, "note": "4000 0000 0000 0000 0000"}, {"card_data": 1}),
        "a name with a c, a v and a c": ({**plain, "c-v-code": "x"}, {"card_data": 1}),
    }
    for key, (params, more) in costs.items():
        with psycopg.connect(shop.url) as connection:
            connection.execute("SET LOCAL track_functions = 'all'")
            decided = accept_by_sql(connection, f"sql-{key.replace(' ', '-').replace(',', '')}", json.dumps(params))
            assert decided.decision == "accepted"
            assert dict(connection.execute(CALLS).fetchall()) == usual | more, key

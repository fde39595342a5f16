"""`idem.events` as an outbox router sees it: logical decoding by pgoutput, on a cluster of its own."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from events.pgoutput import Change, Decoder
from fix_cluster import own_server
from fix_sql import query

from idem.outbox.domain import transition
from idem.outbox.domain.states import KeyState
from idem.outbox.settle import gate

ROUTER = {"id", "aggregatetype", "aggregateid", "type", "payload"}
PUBLICATION = "CREATE PUBLICATION idem_events FOR TABLE idem.events WITH (publish = 'insert')"
"""As docs/adopt/cdc.md says."""
SLOT = "SELECT pg_create_logical_replication_slot('idem_events', 'pgoutput')"
READ = """
SELECT data FROM pg_logical_slot_get_binary_changes('idem_events', NULL, NULL, 'proto_version', '1',
                                                    'publication_names', 'idem_events')
"""
INTENT = """
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, params, requested_at, settled_at)
VALUES (idem.uuid7(), 't', 'pay', gen_random_uuid()::text, 'completed', 'succeeded', '{}', now(), now()) RETURNING id
"""
EVENT = """
INSERT INTO idem.events (aggregateid, number, type, payload, created_at)
SELECT %(intent)s, 1 + coalesce(max(number), 0), %(type)s, jsonb_build_object('state', 'completed', 'note', 'ü€'),
       now() - make_interval(days => %(days)s)
  FROM idem.events WHERE aggregateid = %(intent)s
"""


@pytest.fixture(scope="module")
def decoding() -> Iterator[str]:
    """A server with wal_level = logical, idem's schema, the publication and a slot."""
    with own_server("wal_level = logical\n") as server:
        query(server.url, PUBLICATION)
        query(server.url, SLOT)
        yield server.url


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url)


def read(url: str) -> list[Change]:
    with connect(url) as connection:
        return list(Decoder().read(bytes(row[0]) for row in connection.execute(READ)))


def write(connection: psycopg.Connection[Any], *types: str, intent: UUID | None = None, days: int = 0) -> UUID:
    if intent is None:
        found = connection.execute(INTENT).fetchone()
        assert found is not None
        intent = found[0]
    for each in types:
        connection.execute(EVENT, {"intent": intent, "type": each, "days": days})
    return intent


def test_a_router_finds_its_columns_and_the_order_of_each_intent(decoding: str) -> None:
    read(decoding)
    with connect(decoding) as connection:
        first, second = write(connection, "rested"), write(connection, "completed")
        connection.commit()
        write(connection, "corrected", "later_fact", intent=first)
    found = read(decoding)
    assert [(each.kind, each.table) for each in found] == [("insert", "idem.events")] * 4
    for each in found:
        assert set(each.columns) >= ROUTER
        assert each.columns["aggregatetype"] == "intent"
        assert str(UUID(each.columns["id"])) == each.columns["id"]
        assert json.loads(each.columns["payload"] or "")["note"] == "ü€"
    of_first = [each.columns for each in found if each.columns["aggregateid"] == str(first)]
    assert [(each["number"], each["type"]) for each in of_first] == [
        ("1", "rested"), ("2", "corrected"), ("3", "later_fact"),
    ]  # fmt: skip
    assert [each.columns["type"] for each in found if each.columns["aggregateid"] == str(second)] == ["completed"]
    assert len({each.columns["id"] for each in found}) == 4


def test_what_was_rolled_back_is_never_seen_and_what_commits_late_is(decoding: str) -> None:
    read(decoding)
    with connect(decoding) as late, connect(decoding) as other, connect(decoding) as away:
        slow = write(late, "completed")
        write(away, "completed")
        quick = write(other, "completed")
        other.commit()
        away.rollback()
        assert [each.columns["aggregateid"] for each in read(decoding)] == [str(quick)]
        late.commit()
    assert [each.columns["aggregateid"] for each in read(decoding)] == [str(slow)]


def test_events_of_one_intent_by_concurrent_writers_are_decoded_in_their_order(decoding: str) -> None:
    """As the settling transactions do it: under the lock of the intent, numbered from what is committed."""
    read(decoding)
    with connect(decoding) as connection:
        intent = write(connection)

    def settle(_: int) -> None:
        with connect(decoding) as connection:
            connection.execute("SELECT FROM idem.intents WHERE id = %s FOR NO KEY UPDATE", [intent])
            write(connection, "corrected", intent=intent)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(settle, range(40)))
    assert [each.columns["number"] for each in read(decoding)] == [str(n) for n in range(1, 41)]


def test_retention_s_deletes_are_not_seen(decoding: str) -> None:
    """`publish = 'insert'`: a table that publishes deletes needs a replica identity, and a router ignores them."""
    with connect(decoding) as connection:
        intent = write(connection, "completed", days=500)
    read(decoding)
    with connect(decoding) as connection:
        assert connection.execute("DELETE FROM idem.events WHERE aggregateid = %s", [intent]).rowcount == 1
        quick = write(connection, "completed")
    assert [each.columns["aggregateid"] for each in read(decoding)] == [str(quick)]


def test_the_primary_key_is_the_replica_identity(decoding: str) -> None:
    """So a publication of everything, which somebody else may have, does not stop retention either."""
    with connect(decoding) as connection:
        found = connection.execute("SELECT relreplident::text FROM pg_class WHERE oid = 'idem.events'::regclass")
        assert found.fetchone() == ("d",)
        connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        intent = write(connection, "completed", days=500)
        assert connection.execute("DELETE FROM idem.events WHERE aggregateid = %s", [intent]).rowcount == 1
        connection.rollback()


def test_idem_s_own_settlements_are_decoded_with_what_a_consumer_needs(decoding: str) -> None:
    """The payload of the settling statement itself, as the worker writes it."""
    read(decoding)
    with connect(decoding) as connection:
        intent, row = uuid4(), uuid4()
        connection.execute(
            "INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, params, label, requested_at)"
            " VALUES (%s, 't', 'pay', 'k', '{}', 'order 7', now())", [intent],
        )  # fmt: skip
        connection.execute(
            "INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key, status,"
            " operation, provider, account, origin) VALUES (%s, %s, now(), now(), now(), %s, 'pending', 'pay', 'p',"
            " 'a', 'https://p.test')", [row, intent, uuid4()],
        )  # fmt: skip
        done = transition.Change(
            row, None, 0, None, KeyState.COMPLETED, transition.Evidence("operator", "resolved_completed"),
            ended="succeeded", reference="pay_1", event="completed",
        )  # fmt: skip
        made = connection.execute(
            gate.WRITE,
            {"changes": json.dumps([transition.parameters(done)]), "ids": [row], "folds": []},
        )
        assert len(made.fetchall()) == 1
    (found,) = read(decoding)
    payload = json.loads(found.columns["payload"] or "")
    assert payload | {"status": None} == {
        "intent": str(intent), "number": 1, "tenant": "t", "operation": "pay", "label": "order 7",
        "state": "completed", "outcome": "succeeded", "provider_reference": "pay_1", "status": None,
    }  # fmt: skip

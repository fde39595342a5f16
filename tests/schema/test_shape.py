"""What holds for every table alike: collations, ids, indexes behind deletes, autovacuum."""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

COMPARED_TEXT = Path(__file__).with_name("shape_compared_text.sql").read_text()


def test_every_text_that_is_compared_is_compared_by_its_bytes(rolled_back: Connection) -> None:
    """Hazard 25, IB-038: a database in any locale gives the same order, and no new libc breaks an index."""
    compared = rolled_back.execute(COMPARED_TEXT).fetchall()
    assert len(compared) > 40
    assert [row for row in compared if row[2] != "C"] == []


def test_every_time_has_a_zone(rolled_back: Connection) -> None:
    """IB-038."""
    query = """
        SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'idem'::regnamespace AND a.attnum > 0
           AND a.atttypid IN ('timestamp'::regtype, 'time'::regtype, 'timetz'::regtype, 'date'::regtype)"""
    assert rolled_back.execute(query).fetchall() == []


def test_ib_143_nothing_counts_towards_the_end_of_a_number(rolled_back: Connection) -> None:
    """No sequence, no numeric id; what counts without a bound of its own (looks, attempts) is not a smallint."""
    assert rolled_back.execute("SELECT * FROM pg_sequences WHERE schemaname = 'idem'").fetchall() == []
    ids = """
        SELECT c.relname, a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
          JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'r' AND a.attname ~ '(^id$|_id$|^aggregateid$)'"""
    assert {kind for _, _, kind in rolled_back.execute(ids)} == {"uuid", "text"}
    small = """
        SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'r' AND a.atttypid = 'smallint'::regtype"""
    bounded = {"step", "generation", "format_version", "redrives", "sweeps", "recovery_point", "failures", "undoes"}
    statuses = {"http_status", "answer_status", "response_status"}
    assert {name for _, name in rolled_back.execute(small)} <= bounded | statuses


FOREIGN_KEYS = """
SELECT k.conname, k.confrelid::regclass::text,
       EXISTS (SELECT FROM pg_index x
                 JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
                WHERE x.indrelid = k.conrelid AND x.indkey[0] = k.conkey[1]
                  AND coalesce(pg_get_expr(x.indpred, x.indrelid) = format('(%I IS NOT NULL)', a.attname), true))
           AS indexed,
       EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = k.confrelid AND t.tgname = 'intents_are_kept') AS kept
  FROM pg_constraint k WHERE k.connamespace = 'idem'::regnamespace AND k.contype = 'f'
"""


def test_hazard_25_a_delete_never_scans_for_its_references(rolled_back: Connection) -> None:
    """A foreign key needs an index on its side, or a referenced table that nobody deletes from."""
    keys = rolled_back.execute(FOREIGN_KEYS).fetchall()
    assert {target for _, target, _, _ in keys} == {"idem.intents", "idem.dead_letters"}
    assert [name for name, _, indexed, kept in keys if not indexed and not kept] == []


def test_hazard_66_a_key_may_be_written_before_its_intent(rolled_back: Connection) -> None:
    """`reserve` writes the key, `submit` the intent. No other reference waits for the COMMIT: each is written after."""
    late = (
        "SELECT conname FROM pg_constraint WHERE connamespace = 'idem'::regnamespace AND contype = 'f' AND condeferred"
    )
    assert rolled_back.execute(late).fetchall() == [("idempotency_keys_intent_id_fkey",)]


def test_no_foreign_key_leads_to_an_outbox_row_or_a_key(rolled_back: Connection) -> None:
    """Hazards 25, 37: evidence and requests outlive the row, the intent outlives the key."""
    targets = "SELECT DISTINCT confrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND confrelid > 0"
    assert {"idem.outbox", "idem.idempotency_keys"}.isdisjoint(t for (t,) in rolled_back.execute(targets))


def test_hot_tables_are_vacuumed_early(rolled_back: Connection) -> None:
    """IB-052: on a table that is emptied as fast as it is filled, a fifth of it dead is far too late."""
    found = dict(
        rolled_back.execute("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL").fetchall()
    )
    assert {"outbox", "idempotency_keys", "proofs"} <= found.keys()
    for table in ("outbox", "idempotency_keys", "proofs"):
        scale = [o.partition("=")[2] for o in found[table] if o.startswith("autovacuum_vacuum_scale_factor=")]
        assert scale and float(scale[0]) <= 0.05, table
    assert any(o.startswith("fillfactor=") for o in found["idempotency_keys"])


def test_the_outbox_row_stays_narrow(rolled_back: Connection) -> None:
    """No bytes and no JSON in the hot row: each change of status writes the whole row again."""
    wide = """
        SELECT attname FROM pg_attribute WHERE attrelid = 'idem.outbox'::regclass AND attnum > 0
           AND atttypid IN ('bytea'::regtype, 'json'::regtype, 'jsonb'::regtype)"""
    assert rolled_back.execute(wide).fetchall() == []


def test_ids_are_uuid_version_7(rolled_back: Connection) -> None:
    before = datetime.now(UTC).timestamp()
    rows = rolled_back.execute("SELECT idem.uuid7(), clock_timestamp() FROM generate_series(1, 20000)").fetchall()
    ids: list[uuid.UUID] = [row[0] for row in rows]
    assert len(set(ids)) == len(ids)
    assert {(i.version, i.variant) for i in ids} == {(7, uuid.RFC_4122)}
    milliseconds = [i.int >> 80 for i in ids]
    assert milliseconds == sorted(milliseconds)
    # By the database's clock, which need not be this machine's.
    assert all(abs(ms / 1000 - at.timestamp()) < 1 for ms, (_, at) in zip(milliseconds, rows, strict=True))
    assert abs(milliseconds[0] / 1000 - before) < 86400
    # The 74 random bits are random: each of them is set about as often as not.
    for bit in (*range(62), *range(64, 76)):
        share = sum(i.int >> bit & 1 for i in ids) / len(ids)
        assert 0.45 < share < 0.55, bit


def test_ids_are_ordered_in_postgresql_as_they_were_made(rolled_back: Connection) -> None:
    first = rolled_back.execute("SELECT idem.uuid7()").fetchone()
    rolled_back.execute("SELECT pg_sleep(0.003)")
    second = rolled_back.execute("SELECT idem.uuid7()").fetchone()
    assert first and second
    assert rolled_back.execute("SELECT %s::uuid < %s::uuid", [first[0], second[0]]).fetchone() == (True,)

"""Every session of idem's asks for its own settings, so none of the database's or the role's reaches its statements."""

import ast
import re
from collections.abc import Iterator

import psycopg
import pytest
from connecting.conftest import run
from fix_database import on
from fix_source import ROOT, trees
from fix_sql import query
from fix_waiting import stopping
from psycopg.rows import dict_row
from sqlalchemy import text

from idem.migrations import runner
from idem.outbox.database import session
from idem.outbox.database.pool import Database

SETTINGS = {**session.STATEMENTS, **session.PLANS}

WORST = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "row_security": "on",
    "search_path": "nowhere",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "gin_fuzzy_search_limit": "1",
    "idle_session_timeout": "3s",
    "transaction_timeout": "3s",
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "on",
    "enable_bitmapscan": "on",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_nestloop": "off",
    "jit": "on",
    "statement_timeout": "2s",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "2s",
    "synchronous_commit": "off",
    "client_encoding": "LATIN1",
    "escape_string_warning": "off",
    "lc_time": "C",
    "check_function_bodies": "off",
}
"""What a database may be set to by `ALTER DATABASE … SET`, each at its worst."""

_LEFT = """
# They weigh plans or bound their memory; every plan gives the same rows.
backend_flush_after commit_siblings constraint_exclusion cpu_index_tuple_cost cpu_operator_cost cpu_tuple_cost
cursor_tuple_fraction debug_parallel_query default_statistics_target effective_cache_size
effective_io_concurrency force_parallel_mode from_collapse_limit geqo geqo_effort geqo_generations
geqo_pool_size geqo_seed geqo_selection_bias geqo_threshold hash_mem_multiplier io_combine_limit
jit_above_cost jit_expressions jit_inline_above_cost jit_optimize_above_cost jit_tuple_deforming
join_collapse_limit logical_decoding_work_mem maintenance_io_concurrency maintenance_work_mem
max_parallel_maintenance_workers max_parallel_workers max_parallel_workers_per_gather
min_parallel_index_scan_size min_parallel_table_scan_size parallel_leader_participation parallel_setup_cost
parallel_tuple_cost random_page_cost recursive_worktable_factor seq_page_cost stats_fetch_consistency
temp_buffers vacuum_buffer_usage_limit vacuum_cost_delay vacuum_cost_limit vacuum_cost_page_dirty
vacuum_cost_page_hit vacuum_cost_page_miss wal_sender_timeout wal_skip_threshold work_mem
# They are about the connection, or what is written about it to people.
application_name client_connection_check_interval client_min_messages debug_pretty_print debug_print_parse
debug_print_plan debug_print_rewritten debug_print_raw_parse log_parameter_max_length_on_error
scram_iterations tcp_keepalives_count tcp_keepalives_idle tcp_keepalives_interval tcp_user_timeout
trace_notify trace_sort trace_syncscan
# They are about what none of idem's statements has: XML, text search, large files, foreign tables, money.
default_text_search_config lc_monetary lc_numeric lc_time xmlbinary xmloption restrict_nonsystem_relation_kind
# They are about objects that are made, and idem's are made by migrations.
check_function_bodies createrole_self_grant default_table_access_method default_tablespace
default_toast_compression gin_pending_list_limit icu_validation_level role temp_tablespaces
event_source quote_all_identifiers password_encryption file_copy_method
# How text in statements is read; idem binds its parameters.
backslash_quote escape_string_warning timezone_abbreviations
# psycopg asks for it with each connection.
client_encoding
# Asked for apart, or respected: a host sets the last one when its disk is full.
statement_timeout lock_timeout idle_in_transaction_session_timeout synchronous_commit commit_delay
default_transaction_read_only transaction_isolation transaction_read_only transaction_deferrable
seed session_authorization is_superuser
# Debugging of the server.
allow_alter_system debug_discard_caches debug_logical_replication_streaming synchronize_seqscans
ignore_checksum_failure optimize_bounded_sort exit_on_error
# They are about what vacuum does.
vacuum_freeze_min_age vacuum_freeze_table_age vacuum_failsafe_age vacuum_multixact_failsafe_age
vacuum_multixact_freeze_min_age vacuum_multixact_freeze_table_age vacuum_truncate
vacuum_max_eager_freeze_failure_rate md5_password_warnings local_preload_libraries
"""
LEFT = frozenset(" ".join(line for line in _LEFT.splitlines() if not line.startswith("#")).split())
"""Settings of a session that idem leaves alone."""


@pytest.fixture
def worst_url(db_url: str) -> Iterator[str]:
    """A database whose every setting is at its worst."""
    name = db_url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(on(db_url, "postgres"), autocommit=True) as admin:
        known = {row[0].lower() for row in admin.execute("SELECT name FROM pg_settings")}
        for setting, value in WORST.items():
            if setting in known:
                admin.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")  # type: ignore[arg-type]
    yield db_url


def test_no_connection_is_opened_elsewhere() -> None:
    """Whoever opens one otherwise gets the database's settings."""
    opened = {
        (path, called)
        for path, tree in trees(*OURS, holding=r"connect\b|create_(async_)?engine\b")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and OPENS.search(called := ast.unparse(node.func))
    }
    assert opened == {
        ("outbox/database/session.py", "BoundedConnection.connect"),
        ("outbox/database/session.py", "BlockingConnection.connect"),
        # The two classes whose every wait is bounded.
        ("outbox/database/bounded.py", "super().connect"),
        # The pool of `Database`, which has its own class of connections.
        ("outbox/database/pool.py", "super().connect"),
        # Their creators are `session.bare` and `session.bare_sync`.
        ("outbox/handlers/executor.py", "create_engine"),
        ("outbox/handlers/executor.py", "create_async_engine"),
        # It imports nothing of idem.outbox, and has settings of its own.
        ("migrations/sessions.py", "Session.connect"),
        # It asks PostgreSQL's own view alone, beside a session that has these settings.
        ("migrations/silence.py", "psycopg.connect"),
        ("migrations/sessions.py", "create_engine"),
        # A client of the demo is an application.
        ("cli/demo/clients.py", "create_async_engine"),
        # The clients of a bench are applications too, and its floor is no session of idem's.
        ("cli/bench/accepting.py", "create_async_engine"),
        ("cli/bench/floor.py", "AsyncConnection.connect"),
    }


async def test_ib_188_every_way_to_the_database_asks_for_every_setting(worst_url: str) -> None:
    database = Database(worst_url, name="test", size=1)
    await database.open()
    async with stopping(database):
        async with database.connection() as pooled:
            ways = {"pool": await _shown(pooled)}
        async with await database.dedicated() as dedicated:
            ways["dedicated"] = await _shown(dedicated)
    async with await session.connect(worst_url, name="test") as connection:
        ways["connect"] = await _shown(connection)
    # Whatever rows its caller wants.
    async with await session.connect(worst_url, name="test", row_factory=dict_row) as others:
        assert await (await others.execute("SELECT 1 AS one")).fetchone() == {"one": 1}
    with session.connect_sync(worst_url, name="test", row_factory=dict_row) as other:
        assert other.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    with session.connect_sync(worst_url, name="test") as line:
        ways["connect_sync"] = dict(line.execute(SHOWN).fetchall())
    for way, shown in ways.items():
        wanted = {name: value for name, value in SETTINGS.items() if name in shown}
        assert {name: shown[name] for name in wanted} == wanted, way
        assert (shown["client_encoding"], shown["synchronous_commit"]) == ("UTF8", "on"), way
        assert shown["statement_timeout"] == "30000", way


async def test_a_migration_asks_for_them_too(worst_url: str) -> None:
    with runner.engine(worst_url).connect() as connection:
        shown = {row[0]: row[1] for row in connection.execute(text(SHOWN))}
    assert {name: shown[name] for name in runner.SETTINGS if name in shown} == {
        name: value for name, value in runner.SETTINGS.items() if name in shown
    }
    run(worst_url, "DROP SCHEMA idem CASCADE")
    assert runner.upgrade(worst_url, environment="test").up_to_date


def test_every_setting_of_a_session_is_asked_for_or_left_on_purpose(db_url: str) -> None:
    """A new version of PostgreSQL brings new ones: each is looked at before idem runs there."""
    known = {row[0].lower() for row in query(db_url, "SELECT name FROM pg_settings WHERE context = 'user'")}
    planner = {name for name in known if name.startswith(("enable_", "plpgsql."))}
    assert known - planner - set(SETTINGS) - {each.lower() for each in LEFT} == set()


OURS = ("outbox", "reconciler", "sweeper", "migrations", "cli", "idem")
OPENS = re.compile(r"(\bpsycopg|Connection|Session|\basyncpg|\bsuper\(\))\.connect$|create_(async_)?engine$")


def test_the_page_names_every_setting_with_its_value() -> None:
    page = (ROOT / "docs" / "databases.md").read_text().partition("## What a session asks for")[2]
    told = {}
    for row in re.findall(r"^\| (`.+?) \| (`.+?) \|", page, re.M):
        told.update(zip(*(re.findall(r"`([^`]+)`", cell) for cell in row), strict=False))
    assert {name: told.get(name) for name in SETTINGS} == SETTINGS


SHOWN = "SELECT lower(name), setting FROM pg_settings"


async def _shown(connection: psycopg.AsyncConnection[object]) -> dict[str, str]:
    rows = await (await connection.execute(SHOWN)).fetchall()
    return dict(rows)  # type: ignore[arg-type]

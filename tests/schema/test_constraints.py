"""Each CHECK, unique and foreign key of the schema, violated on purpose, by its name; none may lack its violation."""

import uuid
from typing import Any

import psycopg
import pytest
from schema import shapes
from schema.shapes import ANSWER, CLAIM, NO_CLAIM, NOW, row_columns

Connection = psycopg.Connection[Any]
OTHER = uuid.UUID(int=9)
T, I, K, O, R = "installation", "intents", "idempotency_keys", "outbox", "requests"  # noqa: E741

NO_ORDER = dict.fromkeys(("ordering_group", "ordering_key", "ordering_number"))
NOT_QUEUED = {
    "undecided": ("approval", "pending", "claimed"),
    "wanted": ("unfrozen", "waiting", "pending", "claimed"),
    "wanted_of_another": ("unfrozen", "waiting", "pending", "claimed"),
    "given": ("approval",),
    None: ("approval",),
}
ROW_TIMES = ("available_at", "start_before", "status_since", "quiet_after", "doubted_since", "scheduled_at")
CHECKS: list[tuple[str, str, dict[str, Any]]] = [
    ("installation_singleton_check", T, {"singleton": False}),
    ("installation_secret_check", T, {"secret": b"short"}),
    ("intent_state_is_known", I, {"state": "expired"}),
    ("intent_approval_is_known", I, {"approval": "perhaps"}),
    ("intent_outcome_is_known", I, {"state": "completed", "settled_at": NOW, "outcome": "lost"}),
    ("completed_intent_says_how", I, {"state": "completed", "settled_at": NOW}),
    ("completed_intent_says_how", I, {"outcome": "refused"}),
    ("completed_intent_has_time", I, {"state": "completed", "outcome": "refused"}),
    ("completed_intent_has_time", I, {"settled_at": NOW}),
    ("object_end_is_known", I, {"state": "completed", "outcome": "succeeded", "settled_at": NOW, "object_end": "?"}),
    ("only_what_exists_may_end_later", I, {"object_end": "open"}),
    *(
        (f"{name}_times_are_in_range", table, {column: when})
        for name, table, columns in (
            ("intent", I, ("requested_at", "created_at")),
            ("key", K, ("created_at", "expires_at")),
            ("row", O, ROW_TIMES),
        )
        for column in columns
        for when in ("infinity", "-infinity", "10000-01-01 00:00+00", "0001-01-01 00:00+00", "4000-01-01 00:00+00 BC")
    ),
    ("key_length", K, {"idempotency_key": ""}),
    ("key_length", K, {"idempotency_key": "k" * 256}),
    ("tenant_length", K, {"tenant_id": "t" * 256}),
    ("key_state_is_known", K, {"state": "running"}),
    ("final_key_has_time", K, {"completed_at": NOW}),
    ("final_key_has_time", K, {"state": "completed", **ANSWER, "completed_at": None}),
    ("final_key_has_time", K, {"state": "expired"}),
    *(
        ("completed_key_has_answer", K, {"state": "completed", **ANSWER, missing: None})
        for missing in ("response_status", "response_headers", "response_body")
    ),
    *(
        ("completed_key_has_answer", K, {"state": state, "completed_at": NOW if state == "expired" else None,
                                         "response_body": b"old"})
        for state in ("in_progress", "failed_retryable", "unknown", "expired")
    ),
    ("outbox_status_is_known", O, {"status": "done"}),
    ("claimed_row_has_claim", O, {"status": "claimed"}),
    *(("claim_is_whole", O, {"status": "claimed", **CLAIM, part: None}) for part in CLAIM if part != "claim_token"),
    *(("claim_only_where_it_may_be", O, {"status": s, **CLAIM}) for s in ("pending", "waiting", "unfrozen", "held")),
    *(("inline_rows_are_not_queued", O, {"status": s, "inline": True}) for s in ("pending", "waiting", "unfrozen")),
    ("approval_is_known", O, {"approval": "perhaps"}),
    *(("unapproved_row_is_not_queued", O, row_columns(s) | {"approval": a})
      for a, statuses in NOT_QUEUED.items() for s in statuses),
    ("inline_rows_need_no_approval", O, {"status": "held", "inline": True, "approval": "given"}),
    *(("queued_row_was_never_sent", O, {"status": s, "first_sent_at": NOW})
      for s in ("pending", "waiting", "unfrozen", "held")),
    *(("redrive_waits_in_held", O, row_columns(s) | {"redrive_at": NOW})
      for s in ("pending", "waiting", "unfrozen", "claimed", "unknown", "awaiting")),
    *(("burned_key_is_not_queued", O, row_columns(s) | {"key_burned": True}) for s in ("pending", "claimed")),
    ("outbox_imported_as_check", O, {"imported_as": "a letter"}),
    ("cancelled_key_is_burned", O, {"cancel_sent": True}),
    ("waiting_row_has_order", O, {"status": "waiting"} | NO_ORDER),
    *(("order_is_whole", O, {name: None, "ordering_number": None}) for name in ("ordering_key", "ordering_group")),
    *(("order_is_whole", O, NO_ORDER | more) for more in ({"ordering_number": 1}, {"refusal_holds": True})),
    ("order_hold_says_why", "order_holds", {"why": "bored"}),
    *(("counters_do_not_go_below_zero", O, {counter: -1})
      for counter in ("attempt", "lookups", "absences", "failures", "redrives", "sweeps", "replay_window")),
    ("proofs_outcome_check", "proofs", {"outcome": "ambiguous", "answer_status": 201, "answer_headers": "{}",
                                        "answer_body": b"{}"}),
    ("answer_of_proof_is_whole", "proofs", {"outcome": "succeeded", "answer_status": 201, "answer_headers": "{}"}),
    ("flow_has_no_call_of_its_own", I, {"plan": "[]"}),
    ("only_a_flow_has_a_recovery_point", I, {"recovery_point": 1}),
    ("step_of_a_flow_has_a_name", O, {"step": 2}),
    ("step_outcome_is_known", "steps", {"outcome": "done"}),
    ("step_object_end_is_known", "steps", {"object_end": "half"}),
    ("only_what_exists_ends_later", "steps", {"outcome": "refused", "object_end": "open"}),
    ("step_undoes_an_earlier_one", "steps", {"undoes": 5}),
    ("event_type_is_known", "events", {"type": "created"}),
    ("dead_letter_reason_is_known", "dead_letters", {"reason": "bored"}),
    ("dead_letter_is_about_something", "dead_letters", {"intent_id": None}),
    ("resolved_dead_letter_says_how", "dead_letters", {"resolved_at": NOW}),
    ("handler_name_is_not_a_wildcard", "event_handlers", {"name": "*"}),
    ("handler_hears_what_is_known", "event_handlers", {"hears": "everything"}),
    ("backfill_is_whole", "event_handlers", {"backfilled_number": 0}),
    ("stopped_work_is_not_due", "handler_work", {"dead_letter_id": shapes.ROW}),
    ("resolved_dead_letter_says_how", "dead_letters", {"resolved_at": NOW, "resolution": "completed"}),
    ("resolved_dead_letter_says_how", "dead_letters", {"resolved_by": "somebody"}),
    ("webhook_fate_is_known", "webhook_events", {"fate": "lost"}),
    ("only_a_waiting_event_is_tried_again", "webhook_events", {"fate": "applied", "retry_at": NOW}),
    ("what_can_be_paused", "lane_changes", {"what": "everything"}),
    ("a_change_says_why", "lane_changes", {"reason": ""}),
    ("a_change_says_why", "lane_changes", {"changed_by": ""}),
    ("daemons_ended_how_check", "daemons", {"ended_how": "kaput"}),
    ("api_tokens_token_sha256_check", "api_tokens", {"token_sha256": b"a token in clear"}),
    *(("only_a_revoked_token_says_why", "api_tokens", {column: "x"}) for column in ("revoked_by", "revoked_reason")),
]  # fmt: skip

# A second row beside the one of `shapes.ROWS`; it differs in the given columns, and still meets the first.
TWICE: list[tuple[str, str, dict[str, Any]]] = [
    ("installation_pkey", T, {}),
    ("operations_pkey", "operations", {}),
    ("producers_pkey", "producers", {}),
    ("intents_pkey", I, {}),
    ("idempotency_keys_pkey", K, {"intent_id": OTHER, "fingerprint": "v1:1"}),
    ("outbox_pkey", O, {"intent_id": OTHER}),
    ("one_open_row_an_intent", O, {"id": OTHER, "step": 2, "step_name": "ship"}),
    ("steps_pkey", "steps", {"outbox_id": OTHER}),
    ("steps_by_row", "steps", {"step": 2}),
    ("requests_pkey", R, {"provider_key": OTHER}),
    ("proofs_pkey", "proofs", {}),
    ("decisions_to_count_pkey", "decisions_to_count", {}),
    ("provider_answers_pkey", "provider_answers", {}),
    ("evidence_is_written_once", "evidence", {"id": OTHER}),
    ("events_pkey", "events", {"id": OTHER, "type": "corrected"}),
    ("webhook_events_pkey", "webhook_events", {"event_id": "other"}),
    ("one_row_an_event", "webhook_events", {"id": OTHER}),
    ("webhook_bodies_pkey", "webhook_bodies", {}),
    ("dead_letters_pkey", "dead_letters", {"reason": "discrepancy"}),
    ("one_open_dead_letter_an_intent_and_reason", "dead_letters", {"id": OTHER}),
    ("one_open_dead_letter_a_subject_and_reason", "dead_letters", {"id": OTHER}),
    ("one_dead_letter_an_unmatched_event", "dead_letters", {"id": OTHER}),
    ("one_dead_letter_a_discrepancy", "dead_letters", {"id": OTHER}),
    ("doubts_pkey", "doubts", {}),
    ("order_holds_pkey", "order_holds", {"intent_id": OTHER}),
    ("lanes_pkey", "lanes", {}),
    ("lane_changes_pkey", "lane_changes", {}),
    ("account_identities_pkey", "account_identities", {}),
    ("daemons_pkey", "daemons", {}),
    ("api_tokens_pkey", "api_tokens", {"id": OTHER}),
    ("one_token_an_id", "api_tokens", {"token_sha256": b"i" * 32}),
    ("tenant_usage_pkey", "tenant_usage", {}),
    ("tenant_keys_pkey", "tenant_keys", {}),
    ("handled_events_pkey", "handled_events", {}),
    ("event_handlers_pkey", "event_handlers", {}),
    ("handler_work_pkey", "handler_work", {}),
]
FOREIGN = [
    ("idempotency_keys_intent_id_fkey", K, {}),
    ("outbox_intent_id_fkey", O, {}),
    ("steps_intent_id_fkey", "steps", {}),
    ("proofs_intent_id_fkey", "proofs", {}),
    ("dead_letters_intent_id_fkey", "dead_letters", {}),
    ("order_holds_intent_id_fkey", "order_holds", {}),
    ("handler_work_dead_letter_id_fkey", "handler_work", {"dead_letter_id": shapes.ROW, "due_at": "infinity"}),
]
RULES = r"""
SELECT conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
 WHERE t.relnamespace = 'idem'::regnamespace AND c.contype IN ('c', 'u', 'p', 'f') AND t.relname <> 'alembic_version'
   AND pg_get_constraintdef(c.oid) NOT LIKE 'CHECK (idem.check_%%'
UNION
-- The rules of the hot tables are in one function each.
SELECT r.name[1] FROM pg_proc p CROSS JOIN LATERAL regexp_matches(p.prosrc, $$THEN '(\w+)'$$, 'g') AS r (name)
 WHERE p.pronamespace = 'idem'::regnamespace AND p.proname IN ('check_intent', 'check_key', 'check_row')
UNION
SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
 WHERE t.relnamespace = 'idem'::regnamespace AND x.indisunique AND t.relname <> 'alembic_version'
"""


def test_every_rule_of_the_schema_has_a_violation_here(rolled_back: Connection) -> None:
    rules = {name for (name,) in rolled_back.execute(RULES)}
    assert rules == {name for name, _, _ in [*CHECKS, *TWICE, *FOREIGN]}


def test_the_rows_that_are_changed_here_are_valid(rolled_back: Connection) -> None:
    rolled_back.execute("DELETE FROM idem.installation")
    shapes.plant(rolled_back, *shapes.ROWS)


@pytest.mark.parametrize(("name", "table", "wrong"), CHECKS, ids=lambda x: x if isinstance(x, str) else "")
def test_check(rolled_back: Connection, name: str, table: str, wrong: dict[str, Any]) -> None:
    if table == T:
        rolled_back.execute("DELETE FROM idem.installation")
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        shapes.plant(rolled_back, table, **{table: wrong})
    assert caught.value.diag.constraint_name == name


@pytest.mark.parametrize(("name", "table", "other"), TWICE, ids=lambda x: x if isinstance(x, str) else "")
def test_unique(rolled_back: Connection, name: str, table: str, other: dict[str, Any]) -> None:
    rolled_back.execute("DELETE FROM idem.installation")
    resolved = {"intent_id": None, "resolved_at": NOW, "resolution": "discarded", "resolved_by": "anna"}
    first: dict[str, Any] = {
        "one_open_dead_letter_a_subject_and_reason": {"intent_id": None, "subject": "bank: pay_1"},
        "one_dead_letter_a_discrepancy": resolved | {"subject": "theirs_only bank pay_1", "reason": "discrepancy"},
        "one_dead_letter_an_unmatched_event": resolved
        | {"webhook_event_id": shapes.ROW, "reason": "unmatched_webhook"},
    }.get(name, {})
    shapes.plant(rolled_back, table, **{table: first})
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        shapes.plant(rolled_back, table, **{table: first | other})
    assert caught.value.diag.constraint_name == name


@pytest.mark.parametrize(("name", "table", "wrong"), FOREIGN, ids=lambda x: x if isinstance(x, str) else "")
def test_foreign_key(rolled_back: Connection, name: str, table: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as caught:
        shapes.insert(rolled_back, table, **wrong)
        rolled_back.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert caught.value.diag.constraint_name == name


def test_a_resolved_dead_letter_makes_room_for_the_next(rolled_back: Connection) -> None:
    closed = {"resolved_at": NOW, "resolution": "completed", "resolved_by": "anna"}
    shapes.plant(rolled_back, "dead_letters", dead_letters=closed)
    shapes.plant(rolled_back, "dead_letters", dead_letters={"id": OTHER})


def test_every_claim_column_is_in_the_whole(rolled_back: Connection) -> None:
    """A claim without its token leaves three columns behind that would look like one."""
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        shapes.plant(rolled_back, "outbox", outbox={"status": "unknown", **NO_CLAIM, "claimed_by": "w"})
    assert caught.value.diag.constraint_name == "claim_is_whole"

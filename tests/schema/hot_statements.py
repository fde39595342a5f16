"""The statements of the daemons by name, and parameters under which they find the work of `backlog`."""

import importlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from pkgutil import walk_packages
from typing import Any
from uuid import UUID, uuid4

import psycopg
from schema import shapes
from schema.backlog import TOKEN

from idem import Answer
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason
from idem.outbox.domain.transition import Change, DeadLetter, Evidence, parameters
from idem.outbox.values.sql_parameters import pyformat

PACKAGES = ("application", "outbox", "reconciler", "sweeper")
LOOKING = frozenset(
    {
        "idem.outbox.operator.ages",
        "idem.outbox.database.preconditions",
        "idem.outbox.database.pooler",
        "idem.outbox.database.session",
        "idem.outbox.operator.intent_list",
        "idem.outbox.operator.listing",
        "idem.outbox.operator.order",
        "idem.outbox.operator.guards",
        "idem.outbox.operator.confirmation",
    }
)
"""Modules whose statements are for the eyes of a person or of metrics, and settings of a session."""
SMALL = frozenset({
    "SETTINGS", "TERMINATE", "BACKEND_LIVES", "IDENTITY", "KNOWN", "KNOWN_LOCKED", "ADOPT", "SPOKEN", "LOST_AT",
    "BEAT", "BEATS", "END", "FLEET", "PAUSES", "LANES_OF", "LOCK_LANES", "WRITE_LANE", "KEEP_CHANGE", "WAKE",
    "SEE_ACCOUNT", "KNOWN_ACCOUNT", "SAME", "PROVIDERS", "DELETE_LANE_CHANGES", "GONE_HANDLERS",
})  # fmt: skip
"""Statements that touch no hot table."""
CALLS = frozenset({"RESERVE", "SUBMIT", "COMPLETE", "FORGET_HANDLER", "APPROVE"})
"""Calls of a function of the schema: what it does goes by primary keys, and is tested where it is defined."""
WHOLE = frozenset({
    "HASTEN", "RAISE_QUIET", "AGES", "LIST", "QUARANTINED", "BELIEVE", "STILL_DOUBTED", "LEFT", "COUNT_KEYS",
    "UNASKED", "USED_UP",
})  # fmt: skip
"""Commands of an operator and of recovery, walks once a minute or after a jump of the clock, which are about every open
row, and the count of a tenant's keys; still they read no ledger to its end."""
BATCH = 100
TENANTS = [f"t{n}" for n in range(BATCH)]


@cache
def statements(*, looking: bool = False) -> dict[str, str]:
    """Every SQL constant of the daemons' modules, wherever one is added; `looking`: with those for the eyes."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for module in walk_packages(importlib.import_module(f"idem.{package}").__path__, f"idem.{package}."):
            if looking or module.name not in LOOKING:
                found |= _constants(module.name)
    return found


def _constants(module: str) -> dict[str, str]:
    loaded = importlib.import_module(module)
    own = re.findall(r"^([A-Z][A-Z_]+)(?:: Final)? = ", Path(loaded.__file__ or "").read_text(), re.MULTILINE)
    return {
        # As text: a statement that is explained has no parameters in binary form.
        f"{module.rpartition('.')[2]}.{name}": value.replace(")b", ")s") if "%(" in value else pyformat(value)
        for name, value in vars(loaded).items()
        if name in own and name not in SMALL | CALLS and isinstance(value, str)
        and re.match(r"\s*(SELECT|WITH|UPDATE|INSERT|DELETE)\b", value)
    }  # fmt: skip


Values = Mapping[str, Any]
LANE = {"provider": "p0", "account": "a0", "origin": "https://bank.test", "calls": ["pay", "ship"],
        "operations": ["pay", "ship"],
        "formats": [1], "environment": "test"}  # fmt: skip
HOLD = {
    "token": uuid4(), "holder": "w", "beats": 0, "table": 0, "lease": 30.0, "limit": BATCH, "turns": 100, "after": "t3",
    "asking": 1000, "keep": 1, "spare": False, "exact": False, "window": 86200.0, "sent_as": 1, "starts": True,
    "senders": [0],
}  # fmt: skip
LONG_AGO = datetime.now(UTC) - timedelta(days=5)


_known: dict[str, Callable[[str], Values]] = {}


def values(connection: psycopg.Connection[Any]) -> Callable[[str], Values]:
    """Parameters by the name of a statement. Raises KeyError for one that has none yet.

    They are looked for once in a database: every test of a backlog rolls back.
    """
    name = connection.info.dbname
    if name not in _known:
        # What is looked for here joins whole tables, whatever the statistics say.
        connection.execute("SET LOCAL enable_nestloop = off")
        _known[name] = _values(connection)
        connection.execute("RESET enable_nestloop")
    return _known[name]


def _values(connection: psycopg.Connection[Any]) -> Callable[[str], Values]:
    def ids(query: str) -> list[UUID]:
        return [row[0] for row in connection.execute(query)]  # type: ignore[call-overload]

    claimed = ids(f"SELECT id FROM idem.outbox WHERE claim_token = '{TOKEN}' ORDER BY id LIMIT {BATCH}")
    assert len(claimed) == BATCH
    row, intent = connection.execute(
        "SELECT id, intent_id FROM idem.outbox WHERE status = 'unknown' ORDER BY id LIMIT 1 OFFSET 5000"
    ).fetchone() or (None, None)
    old = ids(
        "SELECT id FROM idem.intents i WHERE state = 'completed' AND NOT EXISTS"
        " (SELECT FROM idem.dead_letters WHERE intent_id = i.id AND resolved_at IS NULL) ORDER BY id LIMIT 100"
    )
    tombs = ids("SELECT intent_id FROM idem.idempotency_keys WHERE state = 'expired' ORDER BY intent_id LIMIT 100")
    held = ids("SELECT intent_id FROM idem.outbox WHERE status = 'held' ORDER BY id LIMIT 100 OFFSET 2000")
    resting = ids("SELECT id FROM idem.outbox WHERE status = 'held' ORDER BY id LIMIT 100 OFFSET 2000")
    waiting = ids("SELECT id FROM idem.outbox WHERE status = 'waiting' ORDER BY id LIMIT 20")
    proof = ids("SELECT id FROM idem.proofs ORDER BY id LIMIT 1 OFFSET 500")[0]
    gone = ids("SELECT outbox_id FROM idem.proofs ORDER BY stored_at DESC LIMIT 1")[0]
    letter = ids("SELECT id FROM idem.dead_letters WHERE resolved_at IS NULL ORDER BY id LIMIT 1")[0]
    at_rest = ids("SELECT id FROM idem.outbox WHERE status = 'held' ORDER BY id LIMIT 1")[0]
    (scope,) = connection.execute(
        "SELECT n.tenant_id, n.operation, n.idempotency_key FROM idem.intents n"
        " WHERE n.id = (SELECT o.intent_id FROM idem.outbox o WHERE o.id = %s)",
        [at_rest],
    ).fetchall()
    rekeyed = {
        "generation": 2, "key": shapes.derived(connection, *scope, generation=2), "method": "POST", "path": "/",
        "headers": "{}", "body": b"{}",
    }  # fmt: skip
    mail = "SELECT intent_id FROM idem.handler_work WHERE handler = 'mail' AND number = 1 ORDER BY intent_id LIMIT 1"
    told = {"handler": "mail", "intent": ids(mail)[0], "number": 1}
    stopped = ids("SELECT dead_letter_id FROM idem.handler_work WHERE dead_letter_id IS NOT NULL LIMIT 1")[0]
    page = {"at": LONG_AGO, "row": UUID(int=0), "batch": BATCH}
    proven = {
        "id": uuid4(), "row": row, "intent": intent, "source": "webhook", "attempt": 1, "outcome": "pending",
        "reference": "pay_x", "status": "processing", "fields": "{}", "http_status": 200, "answer_status": 200,
        "answer_headers": "{}", "answer_body": b"{}", "kind": "lookup", "token": uuid4(), "details": "{}",
        "reason": "conflict", "interim": "{}", "end": "refused",
    }  # fmt: skip
    keys = connection.execute(
        "SELECT tenant_id, operation, idempotency_key FROM idem.idempotency_keys ORDER BY intent_id LIMIT 100"
    ).fetchall()
    waited = {"tenants": [k[0] for k in keys], "operations": [k[1] for k in keys], "keys": [k[2] for k in keys]}
    newest = {
        "tenant": "t1", "operation": None, "low": UUID(int=0), "before": UUID(int=2**128 - 1), "limit": BATCH,
    }  # fmt: skip
    asked = {
        **LANE, "tenant": "t1", "operation": "pay", "key": "a new key", "fingerprint": "v1:0", "params": "{}",
        "label": None,
        "provider_key": shapes.derived(connection, "t1", "pay", "a new key"),
        "method": "POST", "path": "/", "headers": "{}", "body": b"{}",
        "key_ttl": 86400.0, "patience": 3600.0, "replay_window": 0, "marks_start": False, "traceparent": None,
        "may_create": True, "refuse_after_expiry": False, "count": False, "plan": None, "served": None,
        "ordering_group": "pay", "ordering_key": "order 1", "refusal_holds": True,
        "approval": None, "asked_by": None,
    }  # fmt: skip
    event = ids("SELECT id FROM idem.webhook_events WHERE fate = 'unmatched' ORDER BY id LIMIT 1")[0]
    hook = {"provider": "p0", "account": "a0", "event": "evt_110000", "type": "payment.succeeded",
            "reference": "pay_110000", "fate": "unmatched", "place": 0, "out_of_time": False}  # fmt: skip
    hint = ids("SELECT id FROM idem.webhook_events WHERE fate = 'hint' ORDER BY id LIMIT 1")[0]
    request = {"method": "POST", "path": "/", "headers": {}, "body": "", "label": "l"}
    frozen = [
        {"id": str(row_id), "intent_id": str(of), **request}
        for row_id, of in connection.execute(
            "SELECT id, intent_id FROM idem.outbox WHERE status = 'unfrozen' ORDER BY id LIMIT 20"
        )
    ]
    by_name: dict[str, Values] = {
        "claim.CLAIM": {**LANE, **HOLD, "concurrency": 2000},
        "due_retention.DUE_RETENTION": dict.fromkeys(("bodies", "events", "answers", "daemons", "usage"), 86400.0),
        "idle_poll.DUE_ROWS": {"calls": ["pay"], "providers": ["p0"], "accounts": ["a0"],
                               "origins": ["https://bank.test"], "lane_providers": ["p0"], "lane_accounts": ["a0"],
                               "from_times": [LONG_AGO], "from_ids": [UUID(int=0)]},
        "due_passes.DUE_PASSES": {}, "due_work.DUE_WORK": {"providers": ["p0"], "accounts": ["a0"]},
        "claim.CLAIM_NEXT": {**LANE, **HOLD, "concurrency": 2000, "from_time": LONG_AGO, "from_id": UUID(int=0)},
        "commonest.COMPLETE_SUCCEEDED": succeeded(claimed),
        "start_marks.MARK_STARTS": {"ids": claimed, "attempts": [1] * BATCH, "tokens": [TOKEN] * BATCH,
                                     "needed": [1.0] * BATCH},
        "claim.MARK_START": {"id": claimed[0], "token": TOKEN, "attempt": 1, "needed": 1.0},
        "exact_limits.FROZEN": {"ids": claimed, "token": TOKEN},
        "lost_claims.OWN_CLAIMS": {"token": TOKEN, **LANE},
        "begin.BEGIN": asked | {"token": uuid4(), "holder": "inline-1", "lease": 60.0},
        "renewal.RENEW": {"id": claimed[0], "token": TOKEN, "attempt": 1, "lease": 60.0, "renew_for": 900.0},
        "gate.WRITE": {"changes": json.dumps(changes(claimed, proof)), "ids": claimed, "folds": [proof]},
        "locked_rows.LOCK": {"id": row}, "locked_rows.LOCK_OR_SKIP": {"id": row}, "locked_rows.IS_GONE": {"id": row},
        "locked_rows.READ": {"ids": claimed}, "locked_rows.STORED": {"ids": claimed},
        "proofs.STORE": proven, "proofs.DONE": {"row": row}, "proofs.DROP": {"id": proof},
        "proofs.OBJECT_END": {"intent": old[0], "end": "refused"},
        "done_steps.LOCK_FLOW": {"row": row}, "done_steps.DONE_STEP": {"row": row},
        "done_steps.END_OF_ITS_OBJECT": {"row": row, "end": "refused"}, "open_step.OPEN_STEP": {"row": row},
        "record.NOTE": proven,
        "record.NOTE_OPERATOR": {"intent": intent, "kind": "dead_letter_closed", "details": "{}"},
        "record.BURY": {**proven, "event": event}, "record.BURY_UNMATCHED": {"event": event,
            "reason": "unmatched_webhook", "details": "{}"},
        "record.BURY_DISCREPANCY": {"subject": "theirs_only p0/a0 pay_1", "intent": old[0], "details": "{}"},
        "record.EMIT": {"intent": old[0], "type": "later_fact", "outcome": None, "reference": "pay_x", "more": "{}"},
        "results.REMEMBER_ERROR": {"id": row},
        "results.CLAIM_IS_LIVE": {**proven, "row": row},
        "results.WAS_THE_LAST": {**proven, "row": row, "intent": intent},
        "results.IS_WRITTEN": {**proven, "row": row, "intent": intent},
        "results.IS_TAKEN_AS_DONE": {**proven, "row": row, "intent": intent},
        "unfrozen.PICK": {"calls": ["pay"], "providers": ["p0"], "accounts": ["a0"],
                           "origins": ["https://bank.test"], "environment": "test", "limit": BATCH,
                           "after": "", "turns": 100},
        "unfrozen.WAITS": {"calls": ["pay"], "providers": ["p0"], "accounts": ["a0"],
                            "origins": ["https://bank.test"]},
        "local_rows.TAKE": {"operations": ["pay", "ship"], "steps": ["ride", "paid"], "limits": [2, 2],
                            "environment": "test", "running": [], "again": 2.0},
        "local_rows.GIVE_BACK": {"id": row, "taken": 1},
        "local_rows.LOCK_DUE": {"id": row, "taken": 1, "environment": "test"},
        "local_rows.LABEL": {"intent": intent, "label": "l"},
        "missing_steps.MISSING": {"wait": timedelta(0), "operations": ["pay"], "calls": ["other"],
                                  "environment": "test", "limit": BATCH},
        "missing_steps.MISSING_LOCAL": {"wait": timedelta(0), "operations": ["pay"], "calls": ["other"],
                                  "environment": "test", "limit": BATCH},
        "freezing.FREEZE": {"frozen": json.dumps(frozen)},
        "takeover.TAKE_OVER": asked,
        "takeover.OWN_ROW": {"intent": old[0]}, "takeover.SENT": {"id": row, "at": LONG_AGO, "known": "key"},
        "takeover.COMPARED": {"numbers": [1, 2], "tenants": ["t1", "t2"], "operations": ["pay", "pay"],
                            "keys": ["k1", "k2"], "providers": ["p0", "p0"], "accounts": ["a0", "a0"],
                            "provider_keys": [uuid4(), uuid4()]},
        "preview.AGES": {"after": UUID(int=0), "limit": 500},
        "order.PROMOTE": {"ids": waiting, "source": "sweeper", "after": None},
        "order.WAITING_KEYS": {"tenant": "", "group": "", "key": "", "batch": BATCH},
        "order.FIRST_OF_KEY": {"tenant": "t1", "group": "pay", "key": "order 1"}, "order.ENTER": {"batch": BATCH},
        "doubted_rows.LIST": {"details": "{}"}, "doubted_rows.TAKE_BACK": {}, "doubted_rows.IS_LISTED": {"id": row},
        "doubted_rows.PAGE": {"after": UUID(int=0), "limit": 500}, "doubted_rows.WORKED_OFF": {"ids": resting},
        "doubted_rows.WAITING": {}, "quarantine.LOCK_LISTED": {"ids": resting + claimed},
        "quarantine.DOUBT_OPEN": {"ids": claimed, "quiet": '{"p0": 180}', "longest": 86400.0,
                                  "details": json.dumps({str(each): {"why": "w"} for each in claimed})},
        "quarantine.SENT_THEN": {"ids": resting + claimed, "near": 200},
        "release.BELIEVE": {"details": "{}"}, "release.STILL_DOUBTED": {},
        "release.QUARANTINED": {"after": UUID(int=0), "limit": 500},
        "due.CLAIM_DUE": {**LANE, **HOLD, "replays": True, "first": True, "window": 86200.0, "quiet": 180.0,
                     "flight": 120.0, "pause": 60.0, "lookups": True, "concurrency": 2000, "asking": 1000, "later": 2},
        "attempts.BEGIN_REPLAY": {"id": row, "attempt": 1, "token": uuid4(), "window": 86200.0},
        "attempts.BEGIN_CANCEL": {"id": row, "attempt": 1, "token": uuid4(), "blocks": False, "flight": 120.0,
                                  "pause": 900.0},
        "due.HASTEN": {"since": LONG_AGO}, "due.HASTEN_LANE": {**LANE},
        "quiet_time.RAISE_QUIET": {**LANE, "over": LONG_AGO, "until": datetime.now(UTC) + timedelta(days=1)},
        "pause.HASTEN_PAUSED": {**LANE}, "pause.ADD_LANE": {**LANE},
        "stored.WAITING": {"limit": BATCH, "after": UUID(int=0)},
        "stored.PROOFS_OF_A_ROW": {"id": gone},
        "stored.DUE_REDRIVES": {"limit": BATCH, "calls": ["pay"], "providers": ["p0"]},
        "retries.CLAIM_EVENTS": {"providers": ["p0", "p1"], "limit": BATCH, "lease": 60.0},
        "waiting_events.STILL_WAITS": {"id": event, "fate": "unmatched", "tries": 0},
        "waiting_events.FAILED": {"id": event, "again": 4.0},
        "waiting_events.CLOSE": {"id": event, "how": "applied"},
        "fetch_claim.CLAIM_HINTS": {**LANE, "limit": BATCH, "lease": 60.0},
        "fetch_claim.PUT_OFF": {"id": hint, "tries": 1, "again": 4.0, "counts": True, "absences": 1},
        "fetch_claim.HINT_ENDED": {"id": hint, "fate": "agrees"}, "fetch_claim.HINT_IS_EARLY": {"id": hint},
        "hints.KEEP": {"id": uuid4(), "row": row, "reference": "pay_x"}, "hints.DROP": {"id": proof},
        "hints.WAS_EMITTED": {"id": uuid4(), "intent": old[0], "event": "evt_1"},
        "hints.ENDED_WITH": {"intent": old[0], "row": row}, "hints.ANSWERED": {"id": event, "intent": old[0]},
        "later_facts.LOCK_INTENT": {"intent": old[0], "row": row},
        "later_facts.LOCK_ROWS": {"intent": old[0], "row": uuid4()},
        "dead_letters.TRY_EVENT": {"event": event}, "dead_letters.GIVE_UP": {"event": event},
        "dead_letters.LOCK_EVENT": {"event": event},
        "dead_letters.NOTE_TRY": {"letter": letter, "details": "{}"},
        "ingest.IS_KNOWN": hook, "ingest.INSERT_EVENT": {**hook, "event": "evt_new"},
        "ingest.CONFIRM": hook,
        "ingest.INSERT_BODY": {"id": uuid4(), "headers": "{}", "body": b"{}"},
        "ingest.WRITE_FATE": {"id": event, "fate": "applied", "intent": intent, "row": row, "failed": False,
                          "again": None},
        "matching.BY_KEY": {**hook, "key": uuid4()}, "matching.BY_REFERENCE": {**hook, "reference": "pay_110000"},
        "applying.IS_STORED": {"id": proof},
        "calls.FIND": {**LANE, "keys": [uuid4() for _ in range(BATCH)], "limit": 10,
                       "references": [f"pay_{110_000 + 10 * n}" for n in range(BATCH)]},
        "calls.DESCRIBE": {"intents": old}, "calls.DESCRIBE_STEPS": {"rows": resting},
        "calls.ENDED": {**LANE, "at": LONG_AGO - timedelta(days=400), "after": UUID(int=0), "limit": BATCH,
                        "until": datetime.now(UTC).timestamp()},
        "window.WINDOW": {"at": LONG_AGO, "ago": 0.0, "horizon": 60.0},
        "discrepancies.KNOWN": {"subject": "theirs_only p0/a0 pay_1", "intent": old[0], "reference": "pay_1"},
        "discrepancies.STATE": {"intent": old[0]},
        "discrepancies.STATE_OF_STEP": {"intent": old[0], "row": row},
        "clock_ahead.SENT_AHEAD": page, "clock_ahead.MARK": {"ids": claimed},
        "expired_leases.EXPIRED": page, "too_old.TOO_OLD": page, "doubted.DOUBTED": page,
        "expired_keys.PAST_KEYS": page,
        "change_pages.LOCK": {"ids": claimed},
        "expired_leases.EXPIRED_OF_INTENT": {"intent": intent},
        "unasked.UNASKED": page | {"unasked": 86400.0, "stated": "{}"}, "unasked.NOT_REDRIVEN": page,
        "exhausted.USED_UP": {**LANE, **page, "length": 3},
        "expired_keys.ROWS_AT_REST": {"intents": held},
        "expired_keys.EXPIRE": {"intents": old, "ttl": 3600.0, "busy": []},
        "expired_keys.DELETE_TOMBSTONES": {"intents": tombs},
        "abandoned.ABANDONED": page | {"ttl": 1.0}, "abandoned.ROWS_OF": {"intents": held},
        "abandoned.DELETE_ROWS": {"ids": resting, "ttl": 1.0}, "records.DELETE_DEAD_LETTERS": {"batch": BATCH},
        "records.DELETE_WORK": {"handler": "mail", "batch": BATCH},
        "history.OLD_INTENTS": {"after": UUID(int=0), "batch": BATCH},
        "history.DELETE_EVENTS": {"intents": old}, "history.DELETE_REQUESTS": {"intents": old},
        "history.DELETE_EVIDENCE": {"intents": old},
        "history.DELETE_WEBHOOK_EVENTS": {"batch": BATCH, "age": 86400.0 * 200},
        "history.DELETE_WEBHOOK_BODIES": {"batch": BATCH, "age": 86400.0 * 200},
        "known_object.NEWEST": {"provider": "p0", "account": "a0", "horizon": 60.0},
        "known_object.ALIKE": {"provider": "p0", "account": "a0", "horizon": 60.0, "sender": 1, "intent": old[50],
                        "row": row, "step": None, "operation": None, "later": True, "near": 200, "limit": 50},
        "known_object.LAST_REQUEST": {"provider": "p0", "account": "a0", "operation": "pay", "step": None,
                                      "near": 200},
        "key_rotation.WANTED": {"id": row},
        "key_rotation.IS_VOID": {"row": row, "key": uuid4()},
        "key_rotation.IS_CANCELLED": {"row": row, "key": uuid4()},
        "key_rotation.IS_UNDONE": {"row": row, "attempt": 1},
        "key_rotation.REKEY": {**rekeyed, "id": at_rest},
        "dead_letters.DEAD_LETTER": {"letter": letter}, "dead_letters.LOCK_INTENT": {"intent": intent},
        "dead_letters.RESOLVE": {"letter": letter, "how": "discarded", "by": "anna", "note": "seen"},
        "confirmation.CALL": {"intent": intent}, "confirmation.OTHERS": {"intent": intent, "reference": "pay_1"},
        "locking.FACTS": {"id": row}, "locking.ROW_OF_INTENT": {"intent": intent},
        "locking.STATE": {"intent": intent}, "approvals.OPERATION": {"intent": intent},
        "history.DELETE_ANSWERS": {"batch": BATCH, "age": 86400.0 * 200},
        "history.DELETE_DAEMONS": {"batch": BATCH, "age": 3600.0},
        "tokens.CREATE": {"digest": b"h" * 32, "tenant": "t1", "label": "l", "by": "anna"},
        "tokens.TOKENS": {"tenant": "t1", "id": uuid4(), "revoked": False, "limit": BATCH},
        "queue.REGISTER": {"names": ["mail", "new"], "operations": ["pay", "pay"],
                           "hears": ["settled", "settled"], "first": [False, True]},
        "queue.WALK_AFTER": {"names": ["mail", "walks"]}, "queue.WALK": {"names": ["walks"], "limit": BATCH},
        "queue.EXPAND": {"limit": BATCH},
        "queue.FIND": {"names": ["mail", "stopped", "walks"], "limits": [BATCH, BATCH, BATCH]},
        "failures.FAIL": told | {"attempts": 8, "final": True, "kind": "ValueError", "message": "x", "cap": 600.0,
                                 "spread": 1.0},
        "failures.DROP": told, "run.LOCK_WORK": told, "run.MARK": told | {"transaction": "1"},
        "stopped.RESUME": {"letter": stopped}, "stopped.SKIP": {"letter": stopped},
        "tokens.REVOKE": {"id": uuid4(), "by": "anna", "reason": "left"},
        "tokens.LOOK_UP": {"digests": [b"h" * 32]}, "tokens.MARK_USED": {"ids": [uuid4()]},
        "usage.ADD": {"counts": json.dumps([{"tenant_id": t, "requests": 1} for t in TENANTS]),
                              "tenants": TENANTS},
        "usage.TOP": {"since": LONG_AGO, "by": "misuse", "limit": 20},
        "key_counts.ACTIVE": {"tenants": TENANTS, "limits": [1000] * len(TENANTS)},
        "key_counts.WANT": {"tenants": TENANTS},
        "tenant_counts.LOCK_COUNTS": {"intents": old},
        "tenant_counts.SUBTRACT": {"tenants": TENANTS, "keys": [1] * 100},
        "tenant_counts.DUE_MARKS": {"lag": 60.0, "batch": BATCH},
        "tenant_counts.MOVE_MARKS": {"lag": 60.0, "tenants": TENANTS},
        "tenant_counts.DUE_COUNT": {"age": 3600.0}, "tenant_counts.COUNT_KEYS": {"lag": 60.0, "tenant": "t1"},
        "tenant_counts.FORGET_COUNTS": {"age": 86400.0, "batch": BATCH},
        "tenant_counts.ADD_DECISIONS": {"batch": BATCH},
        "tenant_counts.DELETE_USAGE": {"age": 86400.0 * 30, "batch": BATCH},
        "status.ENDED": waited, "status.STATUS": {**waited, "fingerprints": ["v1:0"] * BATCH},
        "accept.ACCEPT": asked, "known_keys.DECIDE": asked, "installation.SECRET": {},
        "actions.REFUSAL": {"intent": intent},
        "statements.STILL_OPEN": asked | {"intent": intent},
        "intents.INTENT": {"intent": intent, "tenant": "t1"}, "intents.TIMELINE": {"intent": intent},
        "intents.STEPS": {"intent": intent},
        "intents.INTENTS": newest, "intents.INTENTS_OF_STATE": newest | {"state": "unknown"},
        "intents.COMPLETED_INTENTS": newest | {"state": "completed"},
        "intents.INTENTS_OF_OPERATION": newest | {"operation": "pay", "states": ["completed", "in_progress"]},
        **{
            f"tenant_search.{name}": newest
            | {"state": None, "operation": None, "label": "label 7", "reference": "pay_110001", "scanned": 5000,
               "key": intent}
            for name in ("BY_REFERENCE", "BY_REFERENCE_OF_STEP", "BY_LABEL", "BY_PROVIDER_KEY")
        },
        "tenant_search.FOUND": {"ids": [intent]}, "search.FOUND": {"ids": [intent]},
        "search.BY_ID": {"low": intent, "high": intent, "limit": BATCH},
        "search.BY_DEAD_LETTER": {"low": intent, "high": intent, "scanned": 10_000, "limit": BATCH},
        "search.BY_PROVIDER_KEY": {"key": intent, "limit": BATCH},
        "search.BY_REFERENCE": {"text": "pay_110001", "scanned": 10_000, "limit": BATCH},
        "search.BY_LABEL": {"text": "label 7", "scanned": 10_000, "limit": BATCH},
        "search.BY_CLIENT_KEY": {"text": "key 7", "limit": BATCH},
        "search.BY_TIME": {"low": UUID(int=0), "high": UUID(int=2**128 - 1), "limit": BATCH},
        "id_prefixes.DEAD_LETTER_IDS": {"low": intent, "high": intent, "limit": 6},
        "id_prefixes.INTENT_IDS": {"low": intent, "high": intent, "limit": 6},
        "id_prefixes.TOKEN_IDS": {"low": intent, "high": intent, "limit": 6},
        "intents.INTENT_OF_KEY": newest | {"state": None, "key": "key 1", "operation": "pay"},
    }  # fmt: skip
    return by_name.__getitem__


def succeeded(rows: list[UUID]) -> Values:
    """A batch of the commonest end, of claims of the backlog."""
    every = len(rows)
    return {
        "ids": rows, "tokens": [TOKEN] * every, "attempts": [1] * every, "statuses": [201] * every,
        "references": [f"pay_{row.hex}" for row in rows], "words": ["paid"] * every, "details": ["{}"] * every,
        "results": ["{}"] * every, "answers": [201] * every, "headers": ["{}"] * every, "bodies": [b"{}"] * every,
        "lives": [3600.0] * every,
    }  # fmt: skip


def changes(claimed: list[UUID], proof: UUID) -> list[dict[str, Any]]:
    """The ends of a batch of claims: done, back to the queue, unknown, held, each with what goes with it."""
    made: list[Change] = []
    for number, row in enumerate(claimed):
        change = Change(
            row, TOKEN, 1, OutboxStatus.PENDING, KeyState.IN_PROGRESS, Evidence("worker", "report"),
            alone=True, answer_ttl=60.0, quiet_for=60.0, due_in=1.0,
        )  # fmt: skip
        match number % 4:
            case 0:
                change = Change(
                    row, TOKEN, 1, None, KeyState.COMPLETED, Evidence("worker", "report"), ended="succeeded",
                    answer=Answer(201, b"{}"), answer_ttl=60.0, reference=f"pay_{number}", event="completed",
                    closes=frozenset({Reason.TOO_LATE, Reason.REJECTED}), folds=(proof,), quiet_for=60.0,
                )  # fmt: skip
            case 1:
                change = Change(
                    row, TOKEN, 1, OutboxStatus.UNKNOWN, KeyState.UNKNOWN, Evidence("worker", "report"), alone=True,
                    quiet_for=60.0, answer_ttl=60.0, letters=(DeadLetter(Reason.NOT_SETTLEABLE),),
                )  # fmt: skip
            case 2:
                change = Change(
                    row, TOKEN, 1, OutboxStatus.HELD, KeyState.FAILED_RETRYABLE, Evidence("worker", "report"),
                    alone=True, quiet_for=60.0, answer_ttl=60.0, letters=(DeadLetter(Reason.REJECTED),), event="rested",
                )  # fmt: skip
        made.append(change)
    return [parameters(change) for change in made]

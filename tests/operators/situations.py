"""Each situation of the table, made on a real database. Where the provider may have acted, it has.

Made by the software itself where it can be; what takes a fault of hours or another release is written into the tables.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

from fix_desk import Desk
from flows import order

from idem.outcomes import Succeeded

Builder = Callable[[Desk, str], Awaitable[UUID]]
Change = Callable[[Desk, UUID], Awaitable[object]]
TIMES = (
    ("outbox", "intent_id", ("available_at", "start_before", "status_since", "claimed_at", "claimed_until",
                             "started_at", "first_sent_at", "quiet_after")),
    ("intents", "id", ("created_at", "requested_at")),
    ("evidence", "intent_id", ("at",)),
)  # fmt: skip


def then(begin: Builder, *changes: Change) -> Builder:
    """A situation that these steps make of another one."""

    async def build(desk: Desk, key: str) -> UUID:
        intent = await begin(desk, key)
        for change in changes:
            await change(desk, intent)
        return intent

    return build


def sent(fault: str = "none", operation: str = "pay.keyed") -> Builder:
    """Accepted and sent once; the bank answers with this fault."""
    return lambda desk, key: desk.spine.sent(key, operation=operation, faults=[fault], match={"method": "POST"})


def past(sql: str) -> Change:
    """Write past the guards: a state that takes hours, a crash or another caller to come to."""
    return lambda desk, intent: desk.spine.forced(sql, i=intent)


def row(values: str, table: str = "outbox", column: str = "intent_id") -> Change:
    return past(f"UPDATE idem.{table} SET {values} WHERE {column} = %(i)s")


def passes(seconds: float) -> Change:
    """Let time pass for one intent alone: the others of the test stay what they are."""

    async def move(desk: Desk, intent: UUID) -> None:
        for table, key, columns in TIMES:
            moved = ", ".join(f"{name} = {name} - make_interval(secs => {seconds})" for name in columns)
            await row(moved, table, key)(desk, intent)

    return move


def taken(until: str) -> Change:
    """A reconciler has taken it, until then."""
    return row(
        "claim_token = gen_random_uuid(), claimed_by = 'reconciler-1', claimed_at = now(),"
        f" claimed_until = now() + '{until}'"
    )


def says(action: str, **options: bool) -> Change:
    """An operator's word."""
    return lambda desk, intent: desk.act(action, intent, **options)


def is_now(state: str, status: str | None) -> Change:
    async def check(desk: Desk, intent: UUID) -> None:
        assert await desk.state(intent) == (state, status)

    return check


async def accepted(desk: Desk, key: str) -> UUID:
    return desk.spine.accepted(key)


async def accepted_keyless(desk: Desk, key: str) -> UUID:
    return desk.spine.accepted(key, operation="pay.keyless")


async def asking(desk: Desk, key: str) -> UUID:
    """A request that waits for a person, of an operation whose calls did not need it before."""
    return desk.spine.accepted(key, operation="pay.asked")


async def charged(desk: Desk, key: str) -> UUID:
    """A flow whose first step is done. Nothing undoes it."""
    flows = order.Flows(desk.spine)
    flows.define(order.step("charge"), order.step("ship", on_refusal="operator"))
    intent = flows.accepted(key)
    await flows.work()
    return intent


async def proof(desk: Desk, intent: UUID) -> None:
    await desk.store_proof(intent, Succeeded("pay_5"))


async def conflict(desk: Desk, intent: UUID) -> None:
    await desk.bury(intent, "conflict")


async def sweep(desk: Desk, _: UUID) -> None:
    await desk.spine.sweep()


async def look(desk: Desk, _: UUID) -> None:
    await desk.spine.reconcile()


HINT = past(
    "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome, reference)"
    " SELECT o.id, o.intent_id, 'webhook', 'hint', 'pay_1' FROM idem.outbox o WHERE o.intent_id = %(i)s"
)
CHANGED = past(
    "INSERT INTO idem.evidence (intent_id, outbox_id, source, kind, from_state, to_state, from_status, to_status)"
    " SELECT intent_id, id, 'recovery', 'database_changed', 'in_progress', 'unknown', 'pending', 'unknown'"
    "   FROM idem.outbox WHERE intent_id = %(i)s"
)
INLINE, BURNED = row("inline = true"), row("key_burned = true")
UNRENDERED = past("DELETE FROM idem.requests WHERE intent_id = %(i)s")

LIVE = then(
    accepted,
    row(
        "status = 'claimed', claim_token = gen_random_uuid(), claimed_by = 'worker-1', claimed_at = now(),"
        " claimed_until = now() + '1 h', attempt = 1, started_at = now(), first_sent_at = now()"
    ),
)
LOUD = sent("act_then_500")
UNKNOWN = then(LOUD, passes(400))
NO_REPLAY = then(sent("act_then_drop", "pay.keyless"), passes(400))
UNKNOWN_BURNED = then(UNKNOWN, BURNED)
RESTORED = then(
    accepted_keyless,
    row("status = 'unknown', quiet_after = now()"),
    row("state = 'unknown'", "intents", "id"),
    row("state = 'unknown'", "idempotency_keys"),
    CHANGED,
    passes(400),
)
REJECTED = then(sent("422_before_acting"), passes(400))
TOO_LATE = then(accepted, passes(2 * 86400), sweep)
# As two look-ups that agree leave it, without a due time of an automatic redrive.
ABSENT = then(
    sent("drop_before_acting", "pay.keyless"),
    passes(4000), look, passes(4000), look, is_now("failed_retryable", "held"), row("redrive_at = NULL"),
)  # fmt: skip

BUILDERS: dict[str, Builder] = {
    "pending": accepted,
    "pending, hint": then(accepted, HINT),
    "pending, proof": then(accepted, proof),
    "pending, on a word": then(UNKNOWN, says("redrive")),
    "waiting": then(accepted, row("status = 'waiting', ordering_group = 'g', ordering_key = 'o'")),
    "approval": asking,
    "approval, hint": then(asking, HINT),
    "approval, proof": then(asking, proof),
    "unfrozen": then(accepted, UNRENDERED, row("status = 'unfrozen'")),
    "claimed, live": LIVE,
    "claimed, lease expired": then(LIVE, passes(7200)),
    "claimed inline, live": then(LIVE, INLINE),
    "unknown, remembered": UNKNOWN,
    "unknown, may still act": LOUD,
    "unknown, forgotten": then(LOUD, passes(90000)),
    "unknown, no replay": NO_REPLAY,
    "unknown, key burned": UNKNOWN_BURNED,
    "unknown, contradicted": then(UNKNOWN, conflict),
    "unknown, hint": then(UNKNOWN, HINT),
    "unknown, proof": then(UNKNOWN, proof),
    "unknown, asked about": then(UNKNOWN, taken("1 h")),
    "unknown, take lost": then(UNKNOWN, taken("-10 s")),
    "unknown, inline": then(UNKNOWN, INLINE),
    "unknown, key gone": then(UNKNOWN, past("DELETE FROM idem.idempotency_keys WHERE intent_id = %(i)s")),
    "unknown, database changed": RESTORED,
    "awaiting": then(sent("pending"), is_now("in_progress", "awaiting")),
    "completed": then(sent(), is_now("completed", None)),
    "held, refused as it is": REJECTED,
    "held, never sent": TOO_LATE,
    "held, never approved": then(asking, passes(2 * 86400), sweep),
    "held, never rendered": then(TOO_LATE, UNRENDERED),
    "held, proven absent": ABSENT,
    "held, proven absent, key burned": then(ABSENT, BURNED),
    "held, on a word, remembered": then(UNKNOWN, says("resolve_failed")),
    "held, on a word, no replay": then(NO_REPLAY, says("resolve_failed")),
    "held, on a word, key burned": then(UNKNOWN_BURNED, says("resolve_failed", know_it_did_not_happen=True)),
    "held, inline": then(REJECTED, INLINE),
    "held, hint": then(REJECTED, HINT),
    "held, proof": then(REJECTED, proof),
    "held, key expired": then(TOO_LATE, row("state = 'expired', completed_at = now()", "idempotency_keys")),
    "held, a later step": then(charged, row("start_before = now()"), sweep),
}

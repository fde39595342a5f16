"""Each situation of the table, made on a real database. Where the provider may have acted, it has.

Built by the software itself where it can be; what takes a fault of hours or another release is written into the tables.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

from fix_desk import Desk

from idem.outcomes import Succeeded

Builder = Callable[[Desk, str], Awaitable[UUID]]
BUILDERS: dict[str, Builder] = {}


def situation(name: str) -> Callable[[Builder], Builder]:
    def kept(builder: Builder) -> Builder:
        BUILDERS[name] = builder
        return builder

    return kept


async def forced(desk: Desk, intent: UUID, sql: str) -> None:
    """Write past the guards: a state that takes hours, a crash or another caller to come to."""
    async with desk.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(sql, {"i": intent})


async def pass_for(desk: Desk, intent: UUID, seconds: float) -> None:
    """Let time pass for one intent alone: the others of the test stay what they are."""
    times = (
        ("outbox", "intent_id", ("available_at", "start_before", "status_since", "claimed_at", "claimed_until",
                                 "started_at", "first_sent_at", "quiet_after")),
        ("intents", "id", ("created_at", "requested_at")),
        ("evidence", "intent_id", ("at",)),
    )  # fmt: skip
    for table, key, columns in times:
        moved = ", ".join(f"{name} = {name} - make_interval(secs => {seconds})" for name in columns)
        await forced(desk, intent, f"UPDATE idem.{table} SET {moved} WHERE {key} = %(i)s")


async def sent(desk: Desk, key: str, fault: str, *, operation: str = "pay.keyed") -> UUID:
    """Accepted and sent once; the bank answers with this fault."""
    intent = await desk.spine.sent(key, operation=operation, faults=[fault], match={"method": "POST"})
    return intent


async def hint(desk: Desk, intent: UUID) -> None:
    await desk.spine.all(
        "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome, reference)"
        " SELECT o.id, o.intent_id, 'webhook', 'hint', 'pay_1' FROM idem.outbox o WHERE o.intent_id = %(i)s"
        " RETURNING 1", i=intent,
    )  # fmt: skip


@situation("pending")
async def pending(desk: Desk, key: str) -> UUID:
    return desk.spine.accepted(key)


@situation("pending, hint")
async def pending_hint(desk: Desk, key: str) -> UUID:
    intent = await pending(desk, key)
    await hint(desk, intent)
    return intent


@situation("pending, proof")
async def pending_proof(desk: Desk, key: str) -> UUID:
    intent = await pending(desk, key)
    await desk.store_proof(intent, Succeeded("pay_5"))
    return intent


@situation("pending, on a word")
async def pending_word(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await desk.act("redrive", intent)
    return intent


@situation("waiting")
async def waiting(desk: Desk, key: str) -> UUID:
    intent = await pending(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET status = 'waiting', ordering_key = 'o' WHERE intent_id = %(i)s")
    return intent


@situation("unfrozen")
async def unfrozen(desk: Desk, key: str) -> UUID:
    intent = await pending(desk, key)
    await forced(desk, intent, "DELETE FROM idem.requests WHERE intent_id = %(i)s")
    await forced(desk, intent, "UPDATE idem.outbox SET status = 'unfrozen' WHERE intent_id = %(i)s")
    return intent


@situation("claimed, live")
async def live(desk: Desk, key: str) -> UUID:
    intent = await pending(desk, key)
    await forced(
        desk, intent,
        "UPDATE idem.outbox SET status = 'claimed', claim_token = gen_random_uuid(), claimed_by = 'worker-1',"
        " claimed_at = now(), claimed_until = now() + '1 h', attempt = 1, started_at = now(), first_sent_at = now()"
        " WHERE intent_id = %(i)s",
    )  # fmt: skip
    return intent


@situation("claimed, lease expired")
async def lease_over(desk: Desk, key: str) -> UUID:
    intent = await live(desk, key)
    await pass_for(desk, intent, 7200)
    return intent


@situation("claimed inline, live")
async def inline_live(desk: Desk, key: str) -> UUID:
    intent = await live(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET inline = true WHERE intent_id = %(i)s")
    return intent


@situation("unknown, remembered")
async def unknown(desk: Desk, key: str) -> UUID:
    intent = await sent(desk, key, "act_then_500")
    await pass_for(desk, intent, 400)
    return intent


@situation("unknown, may still act")
async def unknown_loud(desk: Desk, key: str) -> UUID:
    return await sent(desk, key, "act_then_500")


@situation("unknown, forgotten")
async def unknown_forgotten(desk: Desk, key: str) -> UUID:
    intent = await sent(desk, key, "act_then_500")
    await pass_for(desk, intent, 90000)
    return intent


@situation("unknown, no replay")
async def unknown_keyless(desk: Desk, key: str) -> UUID:
    intent = await sent(desk, key, "act_then_drop", operation="pay.keyless")
    await pass_for(desk, intent, 400)
    return intent


@situation("unknown, key burned")
async def unknown_burned(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET key_burned = true WHERE intent_id = %(i)s")
    return intent


@situation("unknown, contradicted")
async def unknown_contradicted(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await desk.bury(intent, "conflict")
    return intent


@situation("unknown, hint")
async def unknown_hint(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await hint(desk, intent)
    return intent


@situation("unknown, proof")
async def unknown_proof(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await desk.store_proof(intent, Succeeded("pay_5"))
    return intent


async def take(desk: Desk, intent: UUID, until: str) -> None:
    await forced(
        desk, intent,
        "UPDATE idem.outbox SET claim_token = gen_random_uuid(), claimed_by = 'reconciler-1', claimed_at = now(),"
        f" claimed_until = now() + '{until}' WHERE intent_id = %(i)s",
    )  # fmt: skip


@situation("unknown, asked about")
async def unknown_asked(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await take(desk, intent, "1 h")
    return intent


@situation("unknown, take lost")
async def unknown_take_lost(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await take(desk, intent, "-10 s")
    return intent


@situation("unknown, inline")
async def unknown_inline(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET inline = true WHERE intent_id = %(i)s")
    return intent


@situation("unknown, key gone")
async def unknown_key_gone(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await forced(desk, intent, "DELETE FROM idem.idempotency_keys WHERE intent_id = %(i)s")
    return intent


@situation("unknown, database changed")
async def unknown_restored(desk: Desk, key: str) -> UUID:
    intent = desk.spine.accepted(key, operation="pay.keyless")
    await forced(desk, intent, "UPDATE idem.outbox SET status = 'unknown', quiet_after = now() WHERE intent_id = %(i)s")
    for table, column in (("intents", "id"), ("idempotency_keys", "intent_id")):
        await forced(desk, intent, f"UPDATE idem.{table} SET state = 'unknown' WHERE {column} = %(i)s")
    await forced(
        desk, intent,
        "INSERT INTO idem.evidence (intent_id, outbox_id, source, kind, from_state, to_state, from_status, to_status)"
        " SELECT intent_id, id, 'recovery', 'database_changed', 'in_progress', 'unknown', 'pending', 'unknown'"
        "   FROM idem.outbox WHERE intent_id = %(i)s",
    )  # fmt: skip
    await pass_for(desk, intent, 400)
    return intent


@situation("awaiting")
async def awaiting(desk: Desk, key: str) -> UUID:
    intent = await sent(desk, key, "pending")
    assert (await desk.state(intent))[1] == "awaiting"
    return intent


@situation("completed")
async def completed(desk: Desk, key: str) -> UUID:
    intent = await desk.spine.sent(key)
    assert (await desk.state(intent))[0] == "completed"
    return intent

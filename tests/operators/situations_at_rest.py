"""The situations of a row at rest; importing this adds them to `BUILDERS`."""

from uuid import UUID

from fix_desk import Desk
from operators.situations import (
    BUILDERS,
    forced,
    hint,
    pass_for,
    pending,
    sent,
    situation,
    unknown,
    unknown_burned,
    unknown_keyless,
)

from idem.outcomes import Succeeded
from idem.sweeper.daemon import Sweeper

ALL = BUILDERS


@situation("held, refused as it is")
async def held_rejected(desk: Desk, key: str) -> UUID:
    intent = await sent(desk, key, "422_before_acting")
    await pass_for(desk, intent, 400)
    return intent


@situation("held, never sent")
async def held_too_late(desk: Desk, key: str) -> UUID:
    intent = await pending(desk, key)
    await pass_for(desk, intent, 2 * 86400)
    await Sweeper(desk.spine.database, desk.spine.catalogue).run_once()
    return intent


@situation("held, never rendered")
async def held_unrenderable(desk: Desk, key: str) -> UUID:
    intent = await held_too_late(desk, key)
    await forced(desk, intent, "DELETE FROM idem.requests WHERE intent_id = %(i)s")
    return intent


@situation("held, proven absent")
async def held_verdict(desk: Desk, key: str) -> UUID:
    """As two look-ups that agree leave it, without a due time of an automatic redrive."""
    intent = await sent(desk, key, "drop_before_acting", operation="pay.keyless")
    for _ in range(2):
        await pass_for(desk, intent, 4000)
        await desk.spine.reconcile()
    assert (await desk.state(intent))[1] == "held"
    await forced(desk, intent, "UPDATE idem.outbox SET redrive_at = NULL WHERE intent_id = %(i)s")
    return intent


@situation("held, proven absent, key burned")
async def held_burned(desk: Desk, key: str) -> UUID:
    intent = await held_verdict(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET key_burned = true WHERE intent_id = %(i)s")
    return intent


@situation("held, on a word, remembered")
async def held_word(desk: Desk, key: str) -> UUID:
    intent = await unknown(desk, key)
    await desk.act("resolve_failed", intent)
    return intent


@situation("held, on a word, no replay")
async def held_word_keyless(desk: Desk, key: str) -> UUID:
    intent = await unknown_keyless(desk, key)
    await desk.act("resolve_failed", intent)
    return intent


@situation("held, on a word, key burned")
async def held_word_burned(desk: Desk, key: str) -> UUID:
    intent = await unknown_burned(desk, key)
    await desk.act("resolve_failed", intent, know_it_did_not_happen=True)
    return intent


@situation("held, inline")
async def held_inline(desk: Desk, key: str) -> UUID:
    intent = await held_rejected(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET inline = true WHERE intent_id = %(i)s")
    return intent


@situation("held, hint")
async def held_hint(desk: Desk, key: str) -> UUID:
    intent = await held_rejected(desk, key)
    await hint(desk, intent)
    return intent


@situation("held, proof")
async def held_proof(desk: Desk, key: str) -> UUID:
    intent = await held_rejected(desk, key)
    await desk.store_proof(intent, Succeeded("pay_5"))
    return intent


@situation("held, key expired")
async def held_expired(desk: Desk, key: str) -> UUID:
    intent = await held_too_late(desk, key)
    await forced(
        desk, intent,
        "UPDATE idem.idempotency_keys SET state = 'expired', completed_at = now() WHERE intent_id = %(i)s",
    )  # fmt: skip
    return intent


@situation("held, a later step")
async def held_step(desk: Desk, key: str) -> UUID:
    intent = await held_too_late(desk, key)
    await forced(desk, intent, "UPDATE idem.outbox SET step = 2 WHERE intent_id = %(i)s")
    return intent

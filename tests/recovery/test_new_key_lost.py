"""Hazard 5: a new provider key that an operator gave in what is lost is asked about, whatever the provider can do."""

from uuid import uuid4

from fix_restore import Restorable

from idem.decisions import Replay
from idem.outbox.domain.lane_names import lane_names
from idem.outbox.domain.outcomes import Seen
from idem.outbox.operator import actions
from idem.outbox.settle import results
from idem.outbox.settle.results import Report
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outcomes import NotExecuted


async def test_a_new_key_in_what_is_lost_is_asked_about_where_there_is_no_replay_and_no_cancel(
    restorable: Restorable,
) -> None:
    """`pay.keyless` can only be asked: it neither remembers a key nor can it be told to void one."""
    spine = restorable.spine
    contract = spine.catalogue.providers["keyless"].contract
    assert not contract.replays and contract.cancel is None
    intent = spine.accepted(operation="pay.keyless")
    name, _ = lane_names(spine.catalogue)["keyless", "keyless"]
    terms = spine.catalogue.require("pay.keyless")
    async with spine.database.connection() as connection:
        (row,) = await claims.claim(
            connection, name, token=uuid4(), holder="w", lease=30, limit=1, now=clock.boottime()
        )
        await results.settle(connection, [Report(row.row, NotExecuted("request"), Seen(422), terms)])
    await restorable.pass_time(400)
    await restorable.backup()
    version = (await spine.one("SELECT version FROM idem.intents"))["version"]
    async with spine.database.connection() as connection:
        await actions.redrive(
            connection, spine.catalogue, intent, by="ann", reason="corrected", version=version, new_provider_key=True
        )
    await spine.work()
    assert spine.effects() == 1
    await restorable.restore()
    await restorable.recover_lost()
    for _ in range(4):
        await restorable.pass_time(400)
        await restorable.sweep()
        await spine.reconcile(hasten=True)
    answer = spine.accept(operation="pay.keyless")
    await spine.work()
    assert spine.effects() == 1
    assert isinstance(answer, Replay), "the look under the next key found it"

"""Hazard 5: a new provider key that an operator gave in what is lost is asked about, whatever the provider can do."""

from fix_restore import Restorable
from fix_steps import claim_one, settle

from idem.decisions import Replay
from idem.outbox.domain.outcomes import Seen
from idem.outbox.settle.report import Report
from idem.outcomes import NotExecuted


async def test_a_lost_new_key_is_asked_about_where_there_is_no_replay_and_no_cancel(restorable: Restorable) -> None:
    """`pay.keyless` can only be asked: it neither remembers a key nor can it be told to void one."""
    spine = restorable.spine
    contract = spine.catalogue.providers["keyless"].contract
    assert not contract.replays and contract.cancel is None
    intent = spine.accepted(operation="pay.keyless")
    terms = spine.catalogue.require("pay.keyless")
    row = await claim_one(spine, "keyless")
    await settle(spine, Report(row.row, NotExecuted("request"), Seen(422), terms))
    await restorable.pass_time(400)
    await restorable.backup()
    await spine.act("redrive", intent, new_provider_key=True)
    assert await spine.works() == 1
    await restorable.restore()
    await restorable.recover_lost()
    for _ in range(4):
        await restorable.pass_time(400)
        await restorable.sweep()
        await spine.reconcile(hasten=True)
    answer = spine.accept(operation="pay.keyless")
    assert await spine.works() == 1
    assert isinstance(answer, Replay), "the look under the next key found it"

"""A failure that the provider keeps under the key (hazard 10, semantics 4.2): no more replays, and a new key."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fix_api import Client
from fix_spine import KEYED, Spine
from settling.burned import burned
from settling.shop import KEPT, sends, use
from structlog.testing import capture_logs

from idem.decisions import Replay, Retrying
from idem.errors import Unrenderable
from idem.outbox.providers.outcome_rules import Rule, Says, statuses


async def test_a_cached_500_ends_the_replays_and_the_look_ups_settle(spine: Spine) -> None:
    """The effect stands, its answer is a 500 for ever: one replay shows it, none follows."""
    use(spine, kept=True)
    intent = await spine.sent(faults=["act_then_500"])
    spine.bank.script({"method": "GET"}, ["503"] * 3)
    await spine.reconcile(after=700, times=4)
    assert isinstance(spine.accept(), Replay)
    assert len(sends(spine)) == 2
    await spine.expect(intent, effects=1, letters=[])


async def test_the_replays_stop_where_nothing_else_can_be_asked(spine: Spine) -> None:
    """Events may still bring the proof; the bank's log shows no third send, however long it takes."""
    use(spine, kept=True, lookups=False, events_settle=True)
    intent = await spine.sent(faults=["act_then_500"])
    await spine.reconcile(after=5000, times=6)
    assert len(sends(spine)) == 2
    assert await spine.letters(intent) == ["reconcile_exhausted"]


async def test_a_first_send_that_says_so_is_never_replayed(spine: Spine) -> None:
    provider = spine.provider("keyed")
    rule = Rule(Says.AMBIGUOUS_CACHED, status=statuses(500))
    spine.change("keyed", outcome=(rule, *provider.outcome))
    intent = await spine.sent(faults=["act_then_500"])
    await spine.expect(intent, status="unknown", key_burned=True)
    assert dict((await spine.reconcile(after=10)).settled) == {"lookup:succeeded": 1}
    assert len(sends(spine)) == 1


async def test_the_redrive_takes_a_new_key_and_the_old_one_is_still_known(spine: Spine) -> None:
    use(spine, kept=True)
    intent = await burned(spine)
    old = (await spine.row(intent))["provider_key"]
    await spine.reconcile(after=200)
    await spine.expect(intent, status="unfrozen", generation=1, provider_key=old)
    await spine.work()
    assert isinstance(spine.accept(), Replay)
    first, *rest, last = sends(spine)
    assert (first, set(rest)) == (str(old), {str(old)})
    assert last != str(old)
    assert spine.effects() == 1
    keys = await spine.all("SELECT provider_key::text AS k FROM idem.requests ORDER BY generation")
    assert [each["k"] for each in keys] == [str(old), last]
    seen = await spine.one("SELECT details FROM idem.evidence WHERE kind = 'rendered'")
    assert seen["details"] == {"new_provider_key": last, "old_provider_key": str(old)}


async def test_a_second_generation_asks_under_both_keys(spine: Spine) -> None:
    """What was sent under the new key and lost is looked for under that one, and under the one before."""
    use(spine, kept=True)
    intent = await burned(spine)
    await spine.reconcile(after=200)
    await spine.work(faults=["act_then_drop"])
    await spine.expect(intent, status="unknown", generation=2, key_burned=False)
    await spine.reconcile(after=10)
    assert isinstance(spine.accept(), Replay)
    assert spine.effects() == 1


async def test_nothing_is_rendered_while_something_sent_may_still_act(spine: Spine) -> None:
    use(spine, kept=True, operation={"redrive": "none", "retry": "client"})
    intent = await burned(spine)
    await spine.execute("UPDATE idem.outbox SET quiet_after = statement_timestamp() + interval '90 s'")
    assert isinstance(spine.accept(), Retrying)
    row = await spine.row(intent)
    assert row["status"] == "unfrozen"
    assert row["available_at"] >= row["quiet_after"]
    await spine.work()
    assert (await spine.row(intent))["status"] == "unfrozen"
    # Whatever moves its time: the guard stands in the statement that picks it.
    await spine.execute("UPDATE idem.outbox SET available_at = statement_timestamp()")
    await spine.work()
    assert (await spine.row(intent))["status"] == "unfrozen"
    before = sends(spine)
    await spine.work(after=100)
    assert isinstance(spine.accept(), Replay)
    assert len(sends(spine)) == len(before) + 1
    assert len(set(sends(spine))) == 2


async def test_an_operators_redrive_takes_a_new_key_too(spine: Spine) -> None:
    use(spine, kept=True, operation={"redrive": "none"})
    intent = await burned(spine)
    assert (await spine.act("redrive", intent)).status == "unfrozen"
    await spine.work()
    assert isinstance(spine.accept(), Replay)
    assert len(set(sends(spine))) == 2
    assert spine.effects() == 1


def unrenderable(params: Any) -> Any:
    raise Unrenderable("a template is gone")


async def test_what_cannot_be_rendered_anew_rests_and_is_never_sent_under_the_old_key(spine: Spine) -> None:
    use(spine, kept=True)
    intent = await burned(spine)
    before = sends(spine)
    spine.operate("pay.keyed", request=unrenderable)
    await spine.advance(200)
    for _ in range(3):
        await spine.reconcile()
        await spine.work()
    await spine.expect(intent, status="held", key_burned=True, generation=1, letters=["unrenderable"])
    assert sends(spine) == before


async def test_an_operation_whose_code_is_gone_rests_too(spine: Spine) -> None:
    use(spine, kept=True)
    intent = await burned(spine)
    before, known = sends(spine), spine.catalogue
    await spine.reconcile(after=200)
    spine.catalogue = replace(known, operations={"pay.keyless": known.operations["pay.keyless"]})
    await spine.work()
    assert (await spine.row(intent))["status"] == "unfrozen"
    await spine.sweep(after=86400)
    await spine.expect(intent, status="held", letters=["too_late"])
    assert sends(spine) == before


async def test_the_database_refuses_to_queue_a_burned_key(spine: Spine) -> None:
    use(spine, kept=True)
    await burned(spine)
    with pytest.raises(psycopg.errors.CheckViolation, match="burned_key_is_not_queued"):
        await spine.execute("UPDATE idem.outbox SET status = 'pending', redrive_at = NULL")


async def test_a_failure_that_no_rule_calls_cached_is_replayed_as_before(spine: Spine) -> None:
    """The rule is the one source: a header alone burns nothing."""
    assert KEPT not in spine.catalogue.providers["keyed"].outcome  # type: ignore[attr-defined]
    use(spine, KEYED, lookups=False)
    await spine.sent(faults=["act_then_500"])
    await spine.reconcile(after=700, times=3)
    assert len(sends(spine)) == 4


async def test_a_retry_under_a_burned_key_is_logged_as_what_it_is(api: Client, spine: Spine) -> None:
    use(spine, kept=True)
    intent = await burned(spine)
    with capture_logs() as lines:
        assert (await api.ask()).status_code == 202
    (line,) = [line for line in lines if line["event"] == "transition"]
    assert (line["kind"], line["from_status"], line["to_status"]) == ("retried", "held", "unfrozen")
    assert await spine.status(intent) == "unfrozen"

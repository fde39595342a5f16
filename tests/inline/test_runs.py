"""The caller's own code makes the call: what each beginning and each end of a run means."""

import asyncio
from uuid import uuid4

import pytest
from inline.buying import Shop, inline, prepared

from idem import Answer
from idem.decisions import Expired, InProgress, Mismatch, NeedsOperator, Replay, Unknown
from idem.errors import ConfigError, OutOfOrder, Unserved
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.transition import Evidence
from idem.outbox.inline import InlineRun
from idem.outbox.settle.proofs import apply
from idem.outcomes import Pending, Refused, Succeeded


async def prove(shop: Shop, run: InlineRun, proof: Succeeded | Pending, *, operation: str = "buy.keyed") -> str:
    """A signed event, as far as it concerns the row."""
    row = await shop.spine.row(run.intent_id)
    answer = Answer(201, b'{"by": "event"}') if isinstance(proof, Succeeded) else None
    found = StoredProof(uuid4(), "webhook", proof, answer)
    return await shop.spine.run(apply, row["id"], found, Evidence("webhook", "webhook"), shop.known.require(operation))


async def test_hazard_11_a_run_is_a_row_that_is_born_claimed_under_a_token_and_a_lease(shop: Shop) -> None:
    run = await shop.run()
    row = await shop.spine.row(run.intent_id)
    assert (row["status"], row["inline"], row["attempt"]) == ("claimed", True, 1)
    assert row["claim_token"] is not None and row["claimed_by"].startswith("inline-")
    assert row["replay_window"] == 0 and not row["marks_start"]
    assert run.provider_key == str(row["provider_key"])
    assert await run.complete(await shop.pay(run), Seen(200)) == "settled"
    assert shop.spine.effects() == 1
    answer = await shop.begin()
    assert isinstance(answer, Replay) and answer.answer.status == 201
    assert await shop.spine.evidence(run.intent_id) == [
        ("accept", "accepted", None), ("inline", "report", "succeeded")
    ]  # fmt: skip


async def test_nobody_else_makes_the_call_while_it_runs(shop: Shop) -> None:
    run = await shop.run()
    again = await shop.begin()
    assert isinstance(again, InProgress) and again.status == "claimed"
    assert isinstance(await shop.begin(amount=101), Mismatch)
    assert (await shop.spine.work()).claimed == 0
    await run.complete(Refused("pay_1"))
    told = await shop.begin()
    assert isinstance(told, Replay) and told.answer.status == 402
    assert shop.spine.effects() == 0


async def test_hazard_24_the_lease_counts_from_the_statement_and_the_caller_never_believes_longer(shop: Shop) -> None:
    run = await shop.run()
    believed = run.remaining
    left = await shop.spine.value(
        "SELECT extract(epoch FROM claimed_until - clock_timestamp())::float8 FROM idem.outbox"
    )
    assert 20 < believed <= 30
    # Less has passed between the two checks than since the statement: what the run believed then was not too much.
    assert run.remaining <= left + 0.001
    await run.not_executed("end of the test")
    assert run.remaining == 0 and not run.lost


async def test_not_executed_rests_until_its_client_comes_again_and_is_never_queued(shop: Shop) -> None:
    first = await shop.run()
    assert await first.not_executed("the terminal is switched off") == "settled"
    row = await shop.spine.row(first.intent_id)
    assert row is not None and row["status"] == "held" and row["redrive_at"] is None
    key = await shop.spine.key(first.intent_id)
    assert (key["state"], key["last_error_code"]) == ("failed_retryable", "not_executed_caller")
    assert await shop.spine.letters(first.intent_id) == []
    await shop.spine.advance(100_000)
    await shop.sweep()
    await shop.spine.reconcile(hasten=True)
    assert (await shop.spine.work()).claimed == 0
    second = await shop.run()
    assert (second.intent_id, second.attempt, second.provider_key) == (first.intent_id, 2, first.provider_key)
    assert await second.complete(await shop.pay(second)) == "settled"
    assert shop.spine.effects() == 1


async def test_a_first_report_that_comes_again_is_already_written_and_a_run_ends_once(shop: Shop) -> None:
    run = await shop.run()
    await run.complete(Succeeded("pay_1"))
    with pytest.raises(RuntimeError, match="ends only once"):
        await run.not_executed("no, it did not")
    assert not await run.renew()


async def test_hazard_11_without_a_provider_an_unknown_run_is_a_dead_letter_at_once(shop: Shop) -> None:
    run = await shop.run(operation="buy.local")
    await run.ambiguous("the line broke", "ReadTimeout")
    assert await shop.spine.letters(run.intent_id) == ["not_settleable"]
    assert isinstance(await shop.begin(operation="buy.local"), NeedsOperator)


async def test_a_sweeper_that_does_not_know_the_operation_opens_that_dead_letter_too(shop: Shop) -> None:
    run = await shop.run(operation="buy.local")
    run.stop()
    await shop.lose(run)
    known = shop.spine.catalogue
    shop.spine.catalogue = type(known)(known.environment, known.providers, {})
    assert (await shop.sweep()).to_unknown == 1
    assert await shop.spine.letters(run.intent_id) == ["not_settleable"]


async def test_with_a_provider_an_unknown_run_is_asked_about_and_never_replayed(shop: Shop) -> None:
    """The contract of `keyed` promises replays; what the caller's own code has sent is not ours to send."""
    run = await shop.run()
    await shop.pay(run)
    await run.ambiguous("killed before the answer was read")
    assert isinstance(await shop.begin(), Unknown)
    assert await shop.settle(run.intent_id, "completed") == "completed"
    assert [kind for source, kind, _ in await shop.spine.evidence(run.intent_id) if source == "reconciler"] == [
        "lookup"
    ]
    assert shop.spine.effects() == 1
    assert await shop.spine.letters(run.intent_id) == []


async def test_an_unknown_run_of_which_the_provider_has_nothing_rests_for_its_client(shop: Shop) -> None:
    run = await shop.run()
    await run.ambiguous("killed before the call")
    assert await shop.settle(run.intent_id, "failed_retryable") == "failed_retryable"
    row = await shop.spine.row(run.intent_id)
    assert row is not None and row["status"] == "held" and row["redrive_at"] is None
    assert await shop.spine.letters(run.intent_id) == []
    again = await shop.run()
    assert again.attempt == 2
    await again.complete(await shop.pay(again))
    assert shop.spine.effects() == 1


async def test_a_run_that_was_swept_three_times_is_still_its_clients_to_take_up(shop: Shop) -> None:
    """No operator could redrive it, so no entry may stand in the way of its client."""
    for _ in range(4):
        run = await shop.run()
        run.stop()
        assert await shop.settle(run.intent_id, "failed_retryable")
        assert await shop.spine.letters(run.intent_id) == []
    assert (await shop.run()).attempt == 5


async def test_hazard_3_an_event_while_the_lease_is_live_is_folded_by_complete(shop: Shop) -> None:
    run = await shop.run()
    outcome = await shop.pay(run)
    assert isinstance(outcome, Succeeded)
    assert await prove(shop, run, Succeeded(outcome.reference)) == "stored"
    assert await run.complete(outcome) == "folded"
    assert isinstance(await shop.begin(), Replay)
    assert await shop.spine.letters(run.intent_id) == []
    assert await shop.spine.all("SELECT FROM idem.proofs") == []


async def test_hazard_3_an_event_wins_over_the_word_that_nothing_happened(shop: Shop) -> None:
    run = await shop.run()
    assert await prove(shop, run, Succeeded("pay_9")) == "stored"
    assert await run.not_executed("so it seemed") == "folded"
    assert (await shop.spine.key(run.intent_id))["state"] == "completed"


async def test_hazard_4_an_event_and_a_report_that_disagree_settle_nothing(shop: Shop) -> None:
    run = await shop.run()
    await prove(shop, run, Succeeded("pay_9"))
    assert await run.complete(Refused("pay_9")) == "folded"
    assert (await shop.spine.key(run.intent_id))["state"] == "unknown"
    assert await shop.spine.letters(run.intent_id) == ["conflict"]


async def test_hazard_53_a_row_at_rest_with_an_unapplied_proof_is_not_taken_up(shop: Shop) -> None:
    run = await shop.run()
    await run.not_executed("nothing left")
    row = await shop.spine.row(run.intent_id)
    async with shop.spine.database.connection() as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM idem.outbox WHERE id = %s FOR UPDATE", (row["id"],))
            assert await prove(shop, run, Succeeded("pay_1")) == "stored"
            assert isinstance(await shop.begin(), InProgress)
        assert isinstance(await shop.begin(), InProgress)
    await shop.spine.reconcile()
    assert isinstance(await shop.begin(), Replay)


async def test_pending_waits_for_the_provider_and_settles_by_it(shop: Shop) -> None:
    run = await shop.run()
    assert await run.complete(Pending((await shop.pay(run)).reference, "processing")) == "settled"
    waiting = await shop.begin()
    assert isinstance(waiting, InProgress) and waiting.status == "awaiting"
    assert await shop.settle(run.intent_id, "completed") == "completed"


async def test_pending_where_nobody_could_tell_the_end_is_refused_and_then_unknown(shop: Shop) -> None:
    run = await shop.run(operation="buy.local")
    with pytest.raises(ValueError, match="completes_when"):
        async with run:
            await run.complete(Pending("pay_1"))
    assert await shop.spine.letters(run.intent_id) == ["not_settleable"]


async def test_an_exception_without_a_report_is_ambiguous_at_once(shop: Shop) -> None:
    run = await shop.run()
    with pytest.raises(ZeroDivisionError):
        async with run:
            raise ZeroDivisionError
    assert await shop.spine.status(run.intent_id) == "unknown"
    details = await shop.spine.one("SELECT details FROM idem.evidence WHERE kind = 'report'")
    assert details["details"]["error"] == "ZeroDivisionError"


async def test_a_cancelled_caller_is_ambiguous_and_a_report_that_began_is_written(shop: Shop) -> None:
    silent, reporting = await shop.run("silent"), await shop.run("reporting")

    async def hang() -> None:
        async with silent:
            await asyncio.sleep(60)

    async def report() -> None:
        async with reporting:
            await reporting.complete(Succeeded("pay_1"))

    tasks = [asyncio.create_task(hang()), asyncio.create_task(report())]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (await shop.spine.key(silent.intent_id))["state"] == "unknown"
    assert (await shop.spine.key(reporting.intent_id))["state"] == "completed"


async def test_expired_keys_and_operations_that_are_not_inline(shop: Shop) -> None:
    await (await shop.run()).complete(Succeeded("pay_1"))
    await shop.spine.advance(10**7)
    await shop.sweep()
    assert isinstance(await shop.begin(), Expired)
    with pytest.raises(ConfigError, match="not inline"):
        await shop.runs.begin(prepared(shop.known, shop.spine.url, "pay.keyed", "k2"))


async def test_no_worker_is_given_what_only_its_caller_can_send(shop: Shop) -> None:
    shop.spine.acceptor = type(shop.spine.acceptor)(shop.known.operations, shop.known.providers)
    with pytest.raises(OutOfOrder, match="calls no provider"):
        shop.spine.accept(operation="buy.keyed")
    assert await shop.spine.all("SELECT FROM idem.intents") == []


async def test_accept_of_an_inline_key_at_rest_writes_nothing(shop: Shop) -> None:
    """No worker can make this call, so the retry must come to the code that can."""
    run = await shop.run()
    await run.not_executed("nothing left")
    decided = shop.spine.acceptor
    shop.spine.acceptor = type(decided)(
        {**shop.known.operations, "buy.keyed": inline("buy.keyed", "keyed", kind="provider")}, shop.known.providers
    )
    with pytest.raises(Unserved):
        shop.spine.accept(operation="buy.keyed")
    assert await shop.spine.status(run.intent_id) == "held"

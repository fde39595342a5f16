"""Hazards of settling, each named by its number: the shortest interleaving that breaks without its rule."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fix_spine import KEYED, Spine
from fix_steps import claim_one, prove
from prometheus_client import REGISTRY

from idem import Answer
from idem.decisions import Accepted, InProgress, NeedsOperator, Replay
from idem.errors import OperatorRefused
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.domain.limits import Limits
from idem.outbox.domain.outcomes import Seen
from idem.outbox.operator import ages
from idem.outbox.settle import key_rotation
from idem.outbox.settle.locked_rows import lock
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.freezing import Freezer
from idem.outcomes import CouldNotAsk, Pending, Refused, Succeeded
from idem.reconciler import asker


async def test_hazard_3_a_proof_about_an_earlier_attempt_stops_the_queued_one(spine: Spine) -> None:
    """(a): redriven, queued again; then the webhook says that attempt 1 happened."""
    intent = spine.accepted()
    assert await prove(spine, (await spine.row(intent))["id"], Succeeded("pay_1")) == "applied"
    assert (await spine.work()).claimed == 0
    assert isinstance(spine.accept(), Replay)


async def test_hazard_52_pending_is_a_proof_of_existence(spine: Spine) -> None:
    """The object exists and is being worked on: the queued row is not sent, it is awaited."""
    intent = spine.accepted()
    assert await prove(spine, (await spine.row(intent))["id"], Pending("pay_1")) == "applied"
    await spine.expect(intent, status="awaiting", provider_reference="pay_1")
    assert (await spine.work()).claimed == 0


async def test_hazard_52_a_resting_key_goes_back_to_work_when_the_provider_has_it(spine: Spine) -> None:
    intent = await spine.sent(amount=-1)
    assert (await spine.key(intent))["state"] == "failed_retryable"
    await prove(spine, (await spine.row(intent))["id"], Pending("pay_1"))
    await spine.expect(intent, key="in_progress", letters=[])


async def test_hazard_4_a_refusal_of_our_credentials_settles_nothing(spine: Spine) -> None:
    """(a), (d): 401, and a proxy's page. The row waits behind the others, the key stays in progress."""
    intent = spine.accepted()
    for fault in ("401", "html_403"):
        await spine.work(faults=[fault])
        await spine.expect(intent, status="pending")
        assert isinstance(spine.accept(), InProgress)
        await spine.advance(100)
    await spine.work()
    assert isinstance(spine.accept(), Replay)
    assert spine.effects() == 1


async def test_hazard_4_a_401_on_a_replay_proves_nothing_about_the_first_attempt(spine: Spine) -> None:
    """(b): charged, answer lost; the replay meets a proxy. Only the bank's own answer settles."""
    intent = await spine.sent(faults=["act_then_drop", "401", "html_403"])
    for _ in range(2):
        await spine.advance(400)
        spine.catalogue = no_lookup(spine)
        await spine.reconcile()
        assert (await spine.row(intent))["status"] == "unknown"
    await spine.reconcile(after=400)
    assert isinstance(spine.accept(), Replay)
    assert len(spine.bank.log.sends()) == 4
    assert spine.effects() == 1


def test_hazard_4_a_refusal_by_its_status_alone_settles_no_replay() -> None:
    """Charged, answer lost; on the replay the provider no longer takes this request, and its 4xx are "answers"."""
    answers = dataclasses.replace(KEYED, unlisted_4xx="answer")
    for status in (400, 403, 404, 422):
        assert asker._as_lookup(Refused("pay_1"), Seen(status), answers) == CouldNotAsk()
    assert asker._as_lookup(Refused("pay_1"), Seen(402), answers) == Refused("pay_1"), (
        "a decline is the provider's word"
    )
    assert asker._as_lookup(Refused("pay_1"), Seen(422), KEYED) == Refused("pay_1"), "listed by a rule of the contract"


def no_lookup(spine: Spine) -> Any:
    """The keyed provider as one that can only be asked by a replay."""
    provider = spine.catalogue.providers["keyed"]
    without = dataclasses.replace(provider, lookups=())  # type: ignore[type-var]
    return dataclasses.replace(spine.catalogue, providers={**spine.catalogue.providers, "keyed": without})


async def test_hazard_7_no_replay_outside_the_retention_guard(spine: Spine) -> None:
    """After floor less margin the key may be forgotten: the row is only looked up."""
    intent = await spine.sent(faults=["act_then_drop"])
    done = await spine.reconcile(after=KEYED.key.retention - KEYED.key.margin + 1)
    assert dict(done.settled) == {"lookup:succeeded": 1}
    assert len(spine.bank.log.sends()) == 1
    assert isinstance(spine.accept(), Replay)
    assert await spine.letters(intent) == []


async def test_hazard_7_a_floor_lowered_in_the_configuration_holds_at_once(spine: Spine) -> None:
    await spine.sent(faults=["act_then_drop"])
    await spine.advance(1000)
    key = dataclasses.replace(KEYED.key, retention=600, margin=180)
    spine.change("keyed", contract=dataclasses.replace(KEYED, key=key))
    assert dict((await spine.reconcile()).settled) == {"lookup:succeeded": 1}
    assert len(spine.bank.log.sends()) == 1


async def test_hazard_7_days_of_not_reaching_it_do_not_use_up_the_window(spine: Spine) -> None:
    """(c): `first_sent_at` is cleared while every attempt is proven not executed."""
    intent = await spine.sent(faults=["401"])
    assert (await spine.row(intent))["first_sent_at"] is None


async def test_hazard_8_credentials_of_another_account_prove_no_absence(spine: Spine) -> None:
    """They find nothing, consistently; a payment that is known to exist shows that they cannot be believed."""
    await spine.sent("settled-before", operation="pay.keyless")
    await spine.advance(100)
    await spine.execute("UPDATE idem.intents SET settled_at = settled_at - interval '1 hour'")
    intent = await spine.sent("lost", operation="pay.keyless", faults=["act_then_drop"])
    provider = spine.catalogue.providers["keyless"]
    account = dataclasses.replace(provider.accounts["keyless"], credentials={"authorization": "Bearer keyed-token"})
    swapped = dataclasses.replace(provider, accounts={"keyless": account})  # type: ignore[type-var]
    right, wrong = spine.catalogue, dataclasses.replace(
        spine.catalogue, providers={**spine.catalogue.providers, "keyless": swapped}
    )  # fmt: skip
    spine.catalogue = wrong
    await spine.reconcile(after=400, hasten=True, times=4)
    await spine.expect(intent, status="unknown", absences=0)
    spine.catalogue = right
    await spine.reconcile(hasten=True)
    assert isinstance(spine.accept("lost", operation="pay.keyless"), Replay)
    assert spine.effects() == 2


async def test_hazard_8_a_row_of_another_origin_is_left_alone(spine: Spine) -> None:
    spine.accepted()
    async with spine.database.connection() as connection:
        await connection.execute("ALTER TABLE idem.outbox DISABLE TRIGGER outbox_row_keeps_its_identity")
        await connection.execute("UPDATE idem.outbox SET origin = 'https://elsewhere.example'")
    assert (await spine.work()).claimed == 0


async def test_hazard_15_a_verdict_without_a_redrive_tells_somebody(spine: Spine) -> None:
    """Accepted by SQL or by a library, no client ever retries: a dead letter, not a silence."""
    for retry, letters in (("operator", ["too_late"]), ("client", [])):
        spine.operate("pay.keyless", redrive="none", retry=retry)
        intent = await spine.sent(retry, operation="pay.keyless", faults=["drop_before_acting"])
        await spine.reconcile(after=200, hasten=True, times=2)
        await spine.expect(intent, status="held", letters=letters)
        assert await spine.events(intent) == ["rested"]


async def test_hazard_16_a_polling_client_does_not_make_a_waiting_row_unknown(spine: Spine) -> None:
    intent = spine.accepted()
    for _ in range(3):
        assert isinstance(spine.accept(), InProgress)
    assert (await spine.row(intent))["status"] == "pending"


async def test_hazard_27_what_could_not_be_asked_counts_as_nothing(spine: Spine) -> None:
    """IB-094: the look-up answers 503 for longer than the schedule; nothing is escalated, all is settled afterwards."""
    intent = await spine.sent(operation="pay.keyless", faults=["act_then_drop"])
    spine.bank.script({"method": "GET"}, ["503"] * 20)
    for _ in range(10):
        await spine.advance(4000)
        await spine.execute("UPDATE idem.outbox SET start_before = start_before + interval '4000 s'")
        await spine.reconcile(hasten=True)
    row = await spine.row(intent)
    assert (row["status"], row["lookups"], row["absences"]) == ("unknown", 0, 0)
    assert row["failures"] >= 5
    assert await spine.letters(intent) == []
    spine.bank.forget_script()
    await spine.reconcile(after=4000, hasten=True)
    assert isinstance(spine.accept(operation="pay.keyless"), Replay)


async def test_hazard_27_a_cached_failure_uses_up_the_schedule_and_ends_with_an_operator(spine: Spine) -> None:
    """IB-089: the provider gives the same stored 500 for ever; the key is never changed, no payment is made anew."""
    intent = spine.accepted()
    spine.bank.script(None, ["500_before_acting", *["500_before_acting"] * 20])
    spine.catalogue = no_lookup(spine)
    await spine.work()
    await spine.reconcile(after=4000, hasten=True, times=6)
    assert await spine.letters(intent) == ["reconcile_exhausted"]
    assert isinstance(spine.accept(), NeedsOperator)
    keys = {r.key for r in spine.bank.log.sends()}
    assert len(keys) == 1


@pytest.mark.parametrize("start_within", [None, 900.0])
async def test_hazards_28_44_62_queued_rows_end_by_age_not_by_attempts(
    spine: Spine, start_within: float | None
) -> None:
    known = dataclasses.replace(spine.catalogue.operations["pay.keyed"], start_within=start_within)
    operations = {**spine.catalogue.operations, "pay.keyed": known}
    spine.catalogue = dataclasses.replace(spine.catalogue, operations=operations)
    spine.acceptor.operations = operations
    intent = spine.accepted()
    spine.bank.script(None, ["401"] * 40)
    for _ in range(8):
        await spine.work()
        await spine.advance(100)
    await spine.expect(intent, status="pending", attempt=8)
    assert (await spine.work(after=(start_within or 86400) - 100)).claimed == 0, "too old: not claimed"
    await spine.sweep()
    await spine.expect(intent, status="held", letters=["too_late"], effects=0)


async def test_hazard_33_a_newer_format_is_left_to_a_newer_worker(spine: Spine) -> None:
    intent = spine.accepted()
    await spine.execute("UPDATE idem.outbox SET format_version = 2")
    assert (await spine.work()).claimed == 0
    await spine.expect(intent, status="pending", letters=[])


async def test_hazards_35_65_an_answer_that_cannot_be_rendered_does_not_hold_up_the_effect(spine: Spine) -> None:
    def broken(outcome: object, intent: str) -> Answer:
        raise RuntimeError("a template is missing")

    spine.operate("pay.keyed", answer=broken)
    intent = await spine.sent()
    replay = spine.accept()
    assert isinstance(replay, Replay) and replay.answer.status == 201
    assert b"provider_reference" in replay.answer.body
    assert await spine.letters(intent) == ["answer_failed"]


async def test_hazard_35_the_same_answer_whoever_settled(spine: Spine) -> None:
    """Rendered from the outcome: by the worker, by a replay, by a look-up."""
    bodies = set()
    for n, faults in enumerate((["none"], ["act_then_drop"], ["act_then_drop"])):
        await spine.sent(f"k{n}", faults=faults)
        if n == 2:
            await spine.advance(KEYED.key.retention)
        await spine.reconcile(after=10)
        replay = spine.accept(f"k{n}")
        assert isinstance(replay, Replay), n
        bodies.add((replay.answer.status, tuple(sorted(json.loads(replay.answer.body)))))
    assert len(bodies) == 1


async def test_hazards_48_72_the_concurrency_of_the_fleet_stands_in_the_claim(spine: Spine) -> None:
    contract = dataclasses.replace(KEYED, limits=Limits(concurrency=3))
    spine.change("keyed", contract=contract)
    for n in range(8):
        spine.accepted(f"k{n}")
    assert (await spine.work()).claimed == 3


async def test_hazard_48_a_paused_lane_claims_and_asks_nothing(spine: Spine) -> None:
    spine.accepted()
    await spine.execute("INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyed', 'keyed', true)")
    assert (await spine.work()).claimed == 0


async def test_hazard_54_an_earlier_holder_may_still_be_frozen(spine: Spine) -> None:
    """Attempt 1 swept, attempt 2 a replay that reports: the allowance of attempt 1 still applies."""
    intent = spine.accepted()
    await claim_one(spine, "keyed")
    await spine.sweep(after=31)
    quiet = (await spine.row(intent))["quiet_after"]
    spine.bank.script(None, ["401"])
    await spine.reconcile(after=10)
    await spine.expect(intent, attempt=2)
    left = await spine.one(
        "SELECT extract(epoch FROM quiet_after - statement_timestamp())::float AS s FROM idem.outbox"
    )
    assert left["s"] > KEYED.flight_limit + KEYED.pause_allowance - 60
    assert quiet is not None


async def test_hazards_14_68_absent_for_what_the_provider_had_accepted_is_a_conflict(spine: Spine) -> None:
    intent = spine.accepted(operation="pay.keyless")
    row = await spine.row(intent)
    await prove(spine, row["id"], Pending("pay_unknown_there"), "keyless")
    await spine.reconcile(after=1000, hasten=True, times=4)
    row = await spine.row(intent)
    assert row["status"] == "awaiting"
    assert await spine.letters(intent) == ["conflict"]
    assert isinstance(spine.accept(operation="pay.keyless"), InProgress)


async def test_hazard_14_pending_for_too_long_tells_an_operator_and_polling_goes_on(spine: Spine) -> None:
    intent = await spine.sent(faults=["pending"])
    await spine.execute("UPDATE idem.outbox SET status_since = status_since - interval '11 days'")
    await spine.reconcile(after=100, hasten=True)
    await spine.expect(intent, letters=["pending_too_long"], status="awaiting")
    spine.bank.shift_clock(60)
    await spine.reconcile(hasten=True)
    assert isinstance(spine.accept(), Replay)
    assert await spine.letters(intent) == []


async def test_hazard_74_the_version_is_the_intents_and_every_proof_raises_it(spine: Spine) -> None:
    intent = spine.accepted()
    before = (await spine.one("SELECT version FROM idem.intents"))["version"]
    await prove(spine, (await spine.row(intent))["id"], Pending("pay_1"))
    assert (await spine.one("SELECT version FROM idem.intents"))["version"] == before + 1


async def test_hazard_10_a_redrive_keeps_the_key_and_the_bytes(spine: Spine) -> None:
    """Hazard 6, IB-091, IB-092: id, frozen bytes, provider key and attempt survive every redrive."""
    intent = spine.accepted(operation="pay.keyless")
    before = await spine.one("SELECT id, provider_key FROM idem.outbox")
    await spine.work(faults=["drop_before_acting"])
    await spine.reconcile(after=200, hasten=True, times=2)
    await spine.reconcile(after=100)
    await spine.expect(
        intent, id=before["id"], provider_key=before["provider_key"], status="pending", attempt=1, redrives=1
    )
    await spine.work()
    assert len({r.body_sha256 for r in spine.bank.log.sends()}) == 1
    assert isinstance(spine.accept(operation="pay.keyless"), Replay)


async def test_hazard_19_settling_extends_the_life_of_the_answer(spine: Spine) -> None:
    """Unknown for longer than the key's time: whoever polls hourly still sees the answer."""
    intent = await spine.sent(faults=["act_then_drop"])
    await spine.reconcile(after=spine.catalogue.operations["pay.keyed"].key_ttl + 10, hasten=True)
    left = await spine.one(
        "SELECT extract(epoch FROM expires_at - statement_timestamp())::float AS s FROM idem.idempotency_keys"
    )
    assert left["s"] > 86000
    assert (await spine.key(intent))["state"] == "completed"


async def test_hazard_19_a_late_proof_after_the_key_was_used_anew(spine: Spine) -> None:
    first = await spine.sent(amount=-1)
    row = await spine.row(first)
    await spine.execute("UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x'")
    for _ in range(2):
        await spine.sweep(after=400 * 86400)
    assert isinstance(spine.accept(amount=100), Accepted)
    assert await prove(spine, row["id"], Succeeded("pay_late")) == "conflict", "its row has left: an operator decides"
    assert await spine.letters(first) == ["conflict"]
    states = await spine.all("SELECT state FROM idem.intents ORDER BY created_at")
    assert [each["state"] for each in states] == ["failed_retryable", "in_progress"], "the new intent is untouched"


async def test_hazard_17_two_payments_under_one_reference_are_seen(spine: Spine) -> None:
    """Somebody sent it twice: the key is completed by one of them, and an operator hears of the other."""
    intent = await spine.sent(operation="pay.keyless", faults=["act_then_drop"])
    reference = (await spine.row(intent))["provider_key"]
    async with httpx.AsyncClient(
        base_url=spine.bank.url, headers={"authorization": "Bearer keyless-token"}, verify=False
    ) as client:
        again = await client.post("/payments", json={"amount": 100, "currency": "eur", "reference": str(reference)})
    assert again.status_code == 201
    await spine.reconcile(after=10)
    assert isinstance(spine.accept(operation="pay.keyless"), Replay)
    assert await spine.letters(intent) == ["possible_duplicate"]


async def test_hazard_10_a_burned_key_is_renewed_only_when_nothing_can_act_any_more(spine: Spine) -> None:
    """The provider keeps a refusal of our request under the key for ever; an operator orders a new one."""
    intent = await spine.sent(amount=-1)
    before = await spine.row(intent)

    with pytest.raises(OperatorRefused, match="may still act at the provider"):
        await spine.act("redrive", intent, new_provider_key=True)
    async with spine.database.connection() as connection, connection.transaction():
        found = await lock(connection, before["id"])
        assert found is not None
        following = await key_rotation.following(connection, found.row)
        with pytest.raises(OperatorRefused, match="may still have an effect"):
            await key_rotation.rekey(connection, before["id"], following)
    await spine.advance(KEYED.flight_limit + 1)
    await spine.act("redrive", intent, new_provider_key=True)
    await Freezer(spine.database, spine.catalogue).once()
    await spine.expect(intent, generation=2, provider_key=following.key)
    assert following.key != before["provider_key"]
    assert len(await spine.all("SELECT FROM idem.requests")) == 2
    late = await prove(spine, before["id"], Succeeded("pay_of_the_old_key"))
    assert late == "applied", "earlier keys are still matched"


async def test_hazard_24_a_lease_begins_with_its_statement_not_with_its_transaction(spine: Spine) -> None:
    spine.accepted()
    name, _ = lane_scopes(spine.catalogue)["keyed", "keyed"]
    async with spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT pg_sleep(1.2)")
        await claims.claim(connection, name, token=uuid4(), holder="t", lease=60, limit=1, now=clock.boottime())
        late = await connection.execute(
            "SELECT claimed_until > transaction_timestamp() + interval '61 seconds' FROM idem.outbox"
        )
        assert await late.fetchone() == (True,)


def test_hazard_24_no_statement_of_a_daemon_uses_the_start_of_its_transaction() -> None:
    """`statement_timestamp()` for leases, due times and guards; no clock of a client's."""
    root = Path(__file__).parent.parent.parent
    for folder in ("outbox", "reconciler", "sweeper", "idem"):
        for path in root.joinpath(folder).rglob("*.py"):
            found = re.search(
                r"(?i)(?<![.\w])(now\(\)|current_timestamp|localtimestamp|transaction_timestamp)", path.read_text()
            )
            assert found is None, (path.name, found)


async def test_hazard_45_the_age_of_everything_unsettled_is_a_metric(spine: Spine) -> None:
    spine.accepted("queued")
    await spine.sent("refused", amount=-1, operation="pay.keyless")
    spine.accepted("lost", operation="pay.keyless")
    await claim_one(spine, "keyless")
    await spine.advance(100)
    await spine.run(ages.report, [("keyed", "keyed"), ("keyless", "keyless")])

    def gauge(name: str, what: str, lane: str = "keyless") -> float | None:
        return REGISTRY.get_sample_value(name, {"what": what, "provider": lane, "account": lane})

    assert gauge("idem_unsettled", "claimed") == 1
    assert (gauge("idem_oldest_age_seconds", "claimed") or 0) >= 100
    assert gauge("idem_unsettled", "held") == 1
    assert gauge("idem_unsettled", "dead_letter") == 1
    assert gauge("idem_unsettled", "pending") == 0
    assert gauge("idem_unsettled", "dead_letter", "keyed") == 0
    letters = {"reason": "rejected", "provider": "keyless", "account": "keyless"}
    assert REGISTRY.get_sample_value("idem_dead_letters_open", letters) == 1

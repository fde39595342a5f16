"""What an event may say and when it may come: the rules that are not about applying it once."""

from uuid import uuid4

from fix_webhooks import Hooks, event

from idem.outbox.worker.freezing import Freezer

DONE = ("completed", None)


async def test_ib_112_a_failure_that_is_not_final_then_a_success(hooks: Hooks) -> None:
    """The first card was declined, the customer took another: the contract does not call the first an end."""
    intent = await hooks.desk.unknown("k")
    key = await hooks.key(intent)
    assert await hooks.fate(event(key, "requires_payment_method"), "evt_1") == "noted"
    assert await hooks.fate(event(key, "succeeded"), "evt_2") == "applied"
    assert await hooks.fate(event(key, "requires_payment_method"), "evt_3") == "noted"
    await hooks.expect(intent, DONE, letters=[])


async def test_late_after_the_key_has_expired(hooks: Hooks) -> None:
    """The intent keeps its own state: a proof settles it, and the tombstone stays what it is."""
    intent = await hooks.desk.held("k")
    key = await hooks.key(intent)
    await hooks.spine.execute(
        "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x';"
        "UPDATE idem.idempotency_keys SET state = 'expired', completed_at = now(), last_error_code = NULL,"
        " last_error_message = NULL, response_status = NULL, response_headers = NULL, response_body = NULL"
    )
    assert await hooks.fate(event(key)) == "applied"
    await hooks.expect(intent, DONE, key="expired")
    assert await hooks.fate(event(key), "evt_2") == "agrees"


async def test_hazard_57_an_earlier_key_of_the_same_call_is_its_own(hooks: Hooks) -> None:
    """The request was rendered anew under a new key; what the provider did under the old one is still this call."""
    intent = await hooks.desk.held("k")
    old = await hooks.key(intent)
    await hooks.spine.advance(1000)
    await hooks.desk.act("redrive", intent, new_provider_key=True)
    # A refusal under the key that is given up says nothing new, though the next one is not made yet.
    assert await hooks.fate(event(old, "declined"), "evt_0") == "noted"
    await Freezer(hooks.spine.database, hooks.spine.catalogue).once()
    keys = await hooks.spine.all("SELECT provider_key::text AS key FROM idem.requests ORDER BY generation")
    assert (len(keys), keys[0]["key"]) == (2, old)
    assert await hooks.fate(event(old)) == "applied"
    assert await hooks.desk.state(intent) == DONE
    await hooks.spine.work()
    assert hooks.spine.effects() == 0
    # And under the new one it would be a second object.
    assert await hooks.fate(event(keys[1]["key"], reference="pay_2"), "evt_2") == "conflict"
    assert await hooks.spine.letters(intent) == ["possible_duplicate"]


async def test_doctor_says_which_events_wait_to_be_confirmed(hooks: Hooks) -> None:
    """Their calls are held up by them: beyond the limit it is an error, whatever their back-off is."""
    assert await hooks.fate(event(uuid4())) == "unmatched"
    quiet = await hooks.desk.cli("doctor", "--json")
    assert "to confirm" not in quiet.out
    await hooks.spine.execute(
        "UPDATE idem.webhook_events SET fate = 'hint', received_at = now() - interval '1 hour',"
        " retry_at = now() + interval '1 minute'"
    )
    found = await hooks.desk.cli("doctor", "--json")
    assert found.code != 0
    assert "1 webhook of keyed/keyed to confirm" in found.out, found.out

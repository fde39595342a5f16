"""A genuine event whose time stamp is not near our clock is kept and asked about; by itself it proves nothing."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import fix_schemes as sign
import httpx
import pytest
from fix_schemes import PLAIN, PRIVATE, PUBLIC, STANDARD, STRIPE
from fix_webhooks import OTHERS, READER, Hooks, event, secret, signed
from prometheus_client import REGISTRY
from webhooks.refunds import REFUNDED, again

from idem.outbox.domain.contract import LookupRule
from idem.outbox.domain.webhook import Scheme, Webhook
from idem.outbox.providers.schemes.hmac_sha256 import HmacSha256, parse_template
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.providers.schemes.stripe import StripeSignatures
from idem.outbox.values import json_pointer
from idem.outcomes import NotExecuted

P = json_pointer.parse
HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
DONE, UNKNOWN = ("completed", None), ("unknown", "unknown")


async def send(hooks: Hooks, content: Any, id: str = "evt_1", *, away: float = 0.0, key: str | None = None) -> str:
    """Send an event that was signed `away` seconds ago; what became of it."""
    body = json.dumps(content).encode()
    more = {} if key is None else {"key": key}
    answer = await hooks.post(body, signed(body, id, at=time.time() - away, **more))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["fate"])


async def lost(hooks: Hooks) -> tuple[UUID, str]:
    """A call that an event alone settles here; its reference at the bank."""
    found = await hooks.lost()
    await not_now(hooks)
    return found


async def not_now(hooks: Hooks) -> None:
    """No call's own schedule is what settles it here."""
    await hooks.spine.execute("UPDATE idem.outbox SET available_at = now() + interval '1 day'")


async def cannot_be_asked(hooks: Hooks) -> None:
    """The provider knows no keys and answers no look-up: its events are all that can settle a call."""
    contract = hooks.spine.provider("keyed").contract
    unaskable = replace(contract, lookup=LookupRule(), key=replace(contract.key, replay="none"))
    await hooks.change(contract=unaskable, lookups=())


def counted(provider: str = "keyed", account: str = "keyed") -> float:
    found = REGISTRY.get_sample_value("idem_webhooks_out_of_time_total", {"provider": provider, "account": account})
    return found or 0.0


@pytest.mark.parametrize("away", [HOUR, 400 * DAY, -HOUR])
async def test_ib_106_it_is_stored_and_the_provider_is_asked(hooks: Hooks, away: float) -> None:
    intent, reference = await lost(hooks)
    before = counted()
    content = event(await hooks.key(intent), reference=reference)
    assert await send(hooks, content, away=away) == "hint"
    assert await hooks.desk.state(intent) == UNKNOWN
    kept = await hooks.kept()
    assert (kept["out_of_time"], kept["intent_id"]) == (True, intent)
    assert json.loads(bytes(await hooks.spine.value("SELECT body FROM idem.webhook_bodies"))) == content
    assert counted() == before + 1
    assert (await hooks.spine.reconcile()).events == 1
    await hooks.expect(intent, DONE, fate="applied")


async def test_what_it_says_is_never_the_proof(hooks: Hooks) -> None:
    """A recorded event of an earlier state: the provider shows how it is now, whenever and by whom it is read."""
    intent, reference = await lost(hooks)
    content = event(await hooks.key(intent), "declined", reference)
    assert await send(hooks, content, away=DAY) == "hint"
    await hooks.spine.reconcile()
    await hooks.expect(intent, DONE, answer=201)


async def test_read_again_from_its_bytes_it_is_still_no_proof(hooks: Hooks) -> None:
    """It matches no call when it comes; the reconciler reads it again when the call is there."""
    intent, reference = await lost(hooks)
    content = event(await hooks.key(intent), "declined", reference)
    elsewhere = json.loads(json.dumps(content).replace(await hooks.key(intent), "nobody").replace(reference, "pay_x"))
    assert await send(hooks, elsewhere, away=DAY) == "unmatched"
    await hooks.spine.execute("UPDATE idem.webhook_bodies SET body = convert_to(%s, 'UTF8')", (json.dumps(content),))
    await again(hooks)
    assert (await hooks.kept())["out_of_time"] is True
    assert (await hooks.kept())["fate"] in ("hint", "applied")
    await again(hooks)
    await hooks.expect(intent, DONE, answer=201)


async def test_hazard_53_no_send_passes_it(hooks: Hooks) -> None:
    """An earlier attempt was said not to have happened; an old event says otherwise, and is asked about first."""
    intent = await hooks.desk.after("k", NotExecuted("transport"))
    assert await send(hooks, event(await hooks.key(intent)), away=DAY) == "hint"
    await hooks.spine.work(after=120)
    await hooks.expect(intent, ("in_progress", "pending"), effects=0)


async def test_a_delivery_in_time_is_a_proof_though_the_event_is_known(hooks: Hooks) -> None:
    """The provider signs each try anew: the one in time is believed at once, and nobody is asked."""
    await cannot_be_asked(hooks)
    intent = await hooks.desk.unknown("k")
    content = event(await hooks.key(intent))
    assert await send(hooks, content, away=HOUR) == "hint"
    assert await send(hooks, content, away=HOUR) == "duplicate"
    assert await send(hooks, content) == "applied"
    assert await hooks.desk.state(intent) == DONE
    kept = await hooks.kept()
    assert (kept["out_of_time"], kept["fate"], kept["retry_at"]) == (False, "applied", None)
    assert await hooks.spine.all("SELECT 1 FROM idem.proofs") == []
    assert await send(hooks, content, away=HOUR) == "duplicate"
    assert await send(hooks, content) == "duplicate"


async def test_one_in_time_and_one_out_of_time_at_once_are_one_event_and_one_proof(hooks: Hooks) -> None:
    await cannot_be_asked(hooks)
    for number in range(8):
        intent = await hooks.desk.unknown(f"k{number}")
        content, id = event(await hooks.key(intent), reference=f"pay_{number}"), f"evt_{number}"
        told = await asyncio.gather(
            *(send(hooks, content, id, away=away) for away in (HOUR, 0.0, HOUR, 0.0, HOUR, 0.0))
        )
        assert told.count("applied") == 1
        assert await hooks.desk.state(intent) == DONE
        assert (await hooks.kept(id))["fate"] == "applied"
    assert await hooks.spine.all("SELECT 1 FROM idem.proofs") == []


async def test_where_nothing_can_be_asked_a_person_is_told(hooks: Hooks) -> None:
    await cannot_be_asked(hooks)
    intent = await hooks.desk.unknown("k")
    await not_now(hooks)
    content = event(await hooks.key(intent))
    assert await send(hooks, content, away=HOUR) == "hint"
    for _ in range(3):
        assert "event_failed" not in await hooks.spine.letters(intent)
        await again(hooks)
    assert "event_failed" in await hooks.spine.letters(intent)
    said = await hooks.spine.one("SELECT details FROM idem.dead_letters WHERE reason = 'event_failed'")
    assert "let the provider send it again" in said["details"]["error"]
    assert await hooks.desk.state(intent) == UNKNOWN
    # They do what it says.
    assert await send(hooks, content) == "applied"
    await hooks.expect(intent, DONE, letters=[])


async def test_about_a_call_that_has_ended_its_dead_letter_can_be_closed(hooks: Hooks) -> None:
    """It contradicts the end, and no look-up can say who is right: closed, it does not come back."""
    await cannot_be_asked(hooks)
    intent = await hooks.desk.completed("k")
    assert await send(hooks, event(await hooks.key(intent), "declined"), away=HOUR) == "hint"
    for _ in range(3):
        await again(hooks)
    assert await hooks.spine.letters(intent) == ["event_failed"]
    await hooks.desk.close(await hooks.desk.letter(intent, "event_failed"))
    for _ in range(4):
        await again(hooks)
    await hooks.expect(intent, letters=[], fate="noted", proofs=0)


async def test_old_events_about_what_is_known_cost_the_provider_nothing(hooks: Hooks) -> None:
    """Whoever has recorded our traffic can send each event once more, and no more than that."""
    intent = await hooks.desk.completed("k")
    content, asked = event(await hooks.key(intent)), len(hooks.spine.bank.log.requests)
    assert await send(hooks, content, away=DAY) == "agrees"
    for _ in range(20):
        assert await send(hooks, content, away=DAY) == "duplicate"
    await again(hooks)
    assert len(hooks.spine.bank.log.requests) == asked
    assert len(await hooks.spine.all("SELECT 1 FROM idem.webhook_events")) == 1
    assert await hooks.desk.state(intent) == DONE


async def test_a_later_fact_is_told_once_though_its_event_is_forgotten(hooks: Hooks) -> None:
    """Events are kept for less long than what they have told."""
    await hooks.change(outcome=(REFUNDED, *hooks.spine.provider("keyed").outcome))
    intent = await hooks.desk.completed("k")
    content = event(await hooks.key(intent), "refunded")
    assert await send(hooks, content, away=DAY) == "later_fact"
    await hooks.spine.execute("DELETE FROM idem.webhook_bodies; DELETE FROM idem.webhook_events")
    assert await send(hooks, content, away=DAY) == "agrees"
    assert await hooks.spine.events(intent) == ["completed", "later_fact"]


async def test_what_is_not_genuine_is_401_whatever_its_time(hooks: Hooks) -> None:
    body = json.dumps(event(None)).encode()
    for away in (0.0, HOUR, -HOUR, YEAR):
        forged = signed(body, "evt_1", at=time.time() - away, key=secret("nobody's"))
        assert (await hooks.post(body, forged)).status_code == 401
        late = signed(body, "evt_1", at=time.time() - away)
        moved = late | {"webhook-timestamp": str(int(time.time()))}
        assert away == 0.0 or (await hooks.post(body, moved)).status_code == 401
        assert (await hooks.post(body + b" ", late)).status_code == 401
        other = signed(body, "evt_1", at=time.time() - away, key=OTHERS)
        assert (await hooks.post(body, other, "/webhooks/keyed/keyed")).status_code == 401
    assert await hooks.spine.all("SELECT 1 FROM idem.webhook_events") == []


TIMED = HmacSha256(header=b"x-sig", signed=parse_template("{timestamp}.{body}"), timestamp_header=b"x-time")
NAMED = replace(TIMED, signed=parse_template("{timestamp}.{id}.{body}"), id_header=b"x-id")
SCHEMES: list[tuple[str, Scheme, str, Any]] = [
    ("standard", StandardWebhooks(), STANDARD, lambda body, at: sign.by_standard(body, STANDARD, at)),
    ("ed25519", StandardWebhooks(), PUBLIC, lambda body, at: sign.by_key(body, PRIVATE, at)),
    ("stripe", StripeSignatures(), STRIPE, lambda body, at: sign.by_stripe(body, STRIPE, at)),
    ("hmac-sha256", TIMED, PLAIN,
     lambda body, at: {"x-sig": sign.in_hex(PLAIN, b"%d." % at + body), "x-time": str(int(at))}),
    ("hmac-sha256 with an id", NAMED, PLAIN,
     lambda body, at: {"x-sig": sign.in_hex(PLAIN, b"%d.evt_1." % at + body), "x-time": str(int(at)), "x-id": "evt_1"}),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "key", "headers"), [each[1:] for each in SCHEMES], ids=[e[0] for e in SCHEMES])
async def test_every_scheme_with_a_time_stamp(hooks: Hooks, scheme: Scheme, key: str, headers: Any) -> None:
    webhook = Webhook(scheme, {"keyed": (scheme.parse_secret(key),)})
    reader = READER.model_copy(update={"event_id": (P("/id"),)}) if isinstance(scheme, StripeSignatures) else READER
    await hooks.change(webhook=webhook, events=reader)
    intent, reference = await lost(hooks)
    body = json.dumps({"id": "evt_1", **event(await hooks.key(intent), reference=reference)}).encode()
    for away, fate in ((DAY, "hint"), (DAY, "duplicate")):
        answer = await deliver(hooks.http, body, headers(body, int(time.time() - away)))
        assert (answer.status_code, answer.json()["fate"]) == (200, fate)
    assert await hooks.desk.state(intent) == UNKNOWN
    await hooks.spine.reconcile()
    assert await hooks.desk.state(intent) == DONE


async def test_under_an_id_that_is_not_signed_it_is_refused(hooks: Hooks) -> None:
    """Else one recorded delivery would make any number of events."""
    scheme = replace(TIMED, id_header=b"x-id")
    await hooks.change(webhook=Webhook(scheme, {"keyed": (scheme.parse_secret(PLAIN),)}))
    body = json.dumps(event(None)).encode()
    for away, status in ((DAY, 401), (0.0, 200)):
        at = int(time.time() - away)
        headers = {"x-sig": sign.in_hex(PLAIN, b"%d." % at + body), "x-time": str(at), "x-id": "evt_7"}
        assert (await deliver(hooks.http, body, headers)).status_code == status


async def deliver(http: httpx.AsyncClient, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
    return await http.post("/webhooks/keyed", content=body, headers={"content-type": "application/json", **headers})

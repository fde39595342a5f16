"""Each scheme end to end: written in idem.toml, sent to a real port, applied to an unknown call in PostgreSQL."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fix_schemes as sign
import httpx
import pytest
from fix_desk import Desk
from fix_schemes import ADYEN, OTHER_ADYEN, OTHER_PLAIN, OTHER_STANDARD, OTHER_STRIPE, PLAIN, PUBLIC, STANDARD, STRIPE
from fix_webhooks import serving

from idem.outbox.config import load
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import EventRule

URL = "https://hooks.shop.example/webhooks/{account}"
HMAC = 'scheme = "hmac-sha256"\nkey = "/data/idempotency_key"\n'


@dataclass(frozen=True)
class Case:
    """How a scheme is written, an event about a key, and its genuine headers."""

    name: str
    toml: str
    secrets: tuple[str, str]
    event: Callable[[str], Any]
    headers: Callable[[bytes, str], dict[str, str]] = lambda body, secret: {}
    in_body: bool = False


def event(key: str) -> dict[str, Any]:
    shown = {"id": "pay_1", "status": "succeeded", "idempotency_key": key}
    return {"id": "evt_1", "event_id": "evt_1", "type": "payment.succeeded", "data": {**shown, "object": shown}}


def gocardless(key: str) -> dict[str, Any]:
    shown = {"id": "EV1", "status": "succeeded", "action": "confirmed", "metadata": {"key": key}}
    return {"events": [{**shown, "payment": "PM1"}, {"id": "EV2", "action": "created"}]}


def adyen(key: str) -> dict[str, Any]:
    return sign.notification(merchantReference=key)


def timed(body: bytes, secret: str, now: int) -> dict[str, str]:
    return {"x-sig": sign.in_hex(secret, b"%d." % now + body), "x-time": str(now)}


PLAINS = (PLAIN, OTHER_PLAIN)
CASES = [
    Case("standard", 'key = "/data/idempotency_key"\n', (STANDARD, OTHER_STANDARD), event,
         lambda body, secret: sign.by_standard(body, secret, time.time())),
    Case("ed25519", 'key = "/data/idempotency_key"\n', (PUBLIC, STANDARD), event,
         lambda body, secret: sign.by_key(body, at=time.time()) if secret == PUBLIC else
         sign.by_standard(body, OTHER_STANDARD, time.time())),
    Case("stripe", 'scheme = "stripe"\nkey = "/data/object/idempotency_key"\n', (STRIPE, OTHER_STRIPE), event,
         lambda body, secret: sign.by_stripe(body, secret, time.time())),
    Case("github", HMAC + 'header = "X-Hub-Signature-256"\nprefix = "sha256="\n', PLAINS, event,
         lambda body, secret: {"x-hub-signature-256": "sha256=" + sign.in_hex(secret, body)}),
    Case("checkout", HMAC + 'header = "Cko-Signature"\nevent_id = "/id"\n', PLAINS, event,
         lambda body, secret: {"cko-signature": sign.in_hex(secret, body)}),
    Case("shopify", HMAC + 'header = "X-Shopify-Hmac-Sha256"\nencoding = "base64"\n', PLAINS, event,
         lambda body, secret: {"x-shopify-hmac-sha256": sign.in_base64(secret, body)}),
    Case("modern treasury", HMAC + 'header = "X-Signature"\n', PLAINS, event,
         lambda body, secret: {"x-signature": sign.in_hex(secret, body)}),
    Case("timed", HMAC + 'header = "X-Sig"\nsigned = "{timestamp}.{body}"\ntimestamp_header = "X-Time"\n', PLAINS,
         event, lambda body, secret: timed(body, secret, int(time.time()))),
    Case("square", f'scheme = "square"\nkey = "/data/idempotency_key"\nurl = "{URL}"\n', PLAINS, event,
         lambda body, secret: {"x-square-hmacsha256-signature":
                               sign.in_base64(secret, URL.replace("{account}", "keyed").encode() + body)}),
    Case("gocardless", 'scheme = "gocardless"\nkey = "/metadata/key"\nreference = "/payment"\n', PLAINS, gocardless,
         lambda body, secret: {"webhook-signature": sign.in_hex(secret, body)}),
    Case("adyen", 'scheme = "adyen"\nkey = "/merchantReference"\nreference = "/pspReference"\n', (ADYEN, OTHER_ADYEN),
         adyen, in_body=True),
]  # fmt: skip
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def written(file: Path, case: Case, *more: str) -> Path:
    """The desk's file with this webhook."""
    text = file.read_text()
    if case.name == "adyen":
        text = text.replace('"/status" = "succeeded"', '"/success" = "true"')
        text = text.replace('object = { reference = "/id", status = "/status" }', 'object = { status = "/success" }')
    if case.name == "gocardless":
        text = text.replace('object = { reference = "/id",', "object = {")
    secrets = f'[providers.keyed.webhook]\n{case.toml}secrets = [{{ env = "HOOK" }}]\n'
    file.write_text(text + secrets + "".join(more))
    return file


@asynccontextmanager
async def running(desk: Desk, file: Path, case: Case, *more: str) -> AsyncIterator[httpx.AsyncClient]:
    """An endpoint over that file; the first secret is active."""
    found = load(written(file, case, *more), {**desk.environment, "HOOK": case.secrets[0]})
    known = desk.spine.catalogue
    desk.spine.catalogue = Catalogue(
        known.environment, {**known.providers, "keyed": found.providers["keyed"]}, known.operations
    )
    async with (
        serving(desk.spine.url, desk.spine.catalogue) as url,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
    ):
        yield http


async def post(http: httpx.AsyncClient, case: Case, content: Any, secret: str) -> httpx.Response:
    content = sign.batch(sign.by_adyen(content, secret)) if case.in_body else json.dumps(content).encode()
    headers = {"content-type": "application/json"} | case.headers(content, secret)
    return await http.post("/webhooks/keyed", content=content, headers=headers)


async def provider_key(desk: Desk, intent: object) -> str:
    row = await desk.spine.one(
        "SELECT provider_key::text AS key FROM idem.requests WHERE intent_id = %(i)s", i=intent
    )  # fmt: skip
    return str(row["key"])


@EACH
async def test_genuine_is_applied_and_other_is_401(case: Case, desk: Desk, configuration: Path) -> None:
    intent = await desk.unknown("k")
    async with running(desk, configuration, case) as http:
        about = case.event(await provider_key(desk, intent))

        refused = await post(http, case, about, case.secrets[1])
        assert (refused.status_code, refused.json()["code"]) == (401, "webhook_unverified")
        bare = await http.post("/webhooks/keyed", json=about, headers={"content-type": "application/json"})
        assert bare.status_code == 401
        assert (await desk.state(intent))[0] == "unknown"
        assert await events(desk) == []

        for _ in range(2):
            taken = await post(http, case, about, case.secrets[0])
            assert taken.status_code == 200, taken.text
        assert (await desk.state(intent))[0] == "completed"
        stored = await events(desk)
        assert ("applied" in [fate for _, fate in stored]) and len(stored) == (2 if case.name == "gocardless" else 1)


async def events(desk: Desk) -> list[tuple[str, str]]:
    rows = await desk.spine.all("SELECT event_id, fate FROM idem.webhook_events ORDER BY event_id")
    return [(row["event_id"], row["fate"]) for row in rows]


@pytest.mark.parametrize("case", [case for case in CASES if case.in_body], ids=lambda case: case.name)
async def test_a_batch_with_one_bad_item_changes_nothing(case: Case, desk: Desk, configuration: Path) -> None:
    """Adyen's own library looks at the first item alone."""
    intent = await desk.unknown("k")
    async with running(desk, configuration, case) as http:
        about = await provider_key(desk, intent)
        good = sign.by_adyen(sign.notification(merchantReference=about))
        forged = sign.by_adyen(sign.notification(pspReference="2"), OTHER_ADYEN)
        headers = {"content-type": "application/json"}
        answer = await http.post("/webhooks/keyed", content=sign.batch(good, forged), headers=headers)
        assert answer.status_code == 401
        assert (await desk.state(intent))[0] == "unknown" and await events(desk) == []

        second = sign.by_adyen(sign.notification(pspReference="2", merchantReference="somebody else's"))
        answer = await http.post("/webhooks/keyed", content=sign.batch(good, second), headers=headers)
        assert (answer.status_code, answer.text) == (200, "[accepted]")
        assert (await desk.state(intent))[0] == "completed"
        assert await events(desk) == [
            ("AUTHORISATION/2/true", "unmatched"),
            ("AUTHORISATION/7914073381342284/true", "applied"),
        ]


async def test_the_reply_is_a_setting(desk: Desk, configuration: Path) -> None:
    reply = 'reply = "ok"\n'
    async with running(desk, configuration, CASES[0], reply) as http:
        answer = await post(http, CASES[0], event("nobody's"), STANDARD)
        assert (answer.status_code, answer.text) == (200, "ok")
        assert answer.headers["content-type"].startswith("text/plain")


async def test_what_is_for_another_address_is_401(desk: Desk, configuration: Path) -> None:
    """Signed by the same secret, for another endpoint of the same person."""
    (square,) = (case for case in CASES if case.name == "square")
    async with running(desk, configuration, square) as http:
        body = json.dumps(event("k")).encode()
        for url in (URL, URL.replace("{account}", "other"), "https://hooks.shop.example/webhooks/keyed/"):
            headers = {"x-square-hmacsha256-signature": sign.in_base64(PLAIN, url.encode() + body)}
            answer = await http.post(
                "/webhooks/keyed", content=body, headers=headers | {"content-type": "application/json"}
            )
            assert answer.status_code == 401


async def test_the_contract_knows_what_is_said_about_events(desk: Desk, configuration: Path) -> None:
    more = 'fetch = true\nredelivery = "5d"\nunmatched = "ignore"\n'
    async with running(desk, configuration, CASES[2], more):
        contract = desk.spine.catalogue.providers["keyed"].contract
        assert contract.event_rule == EventRule(True, 432000.0, None)
        assert contract.events_settle

"""Events at a running endpoint: signed by the official library, sent over real HTTP."""

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
from fix_desk import Desk
from fix_kept import KeptDatabase
from fix_server import KEPT
from fix_spine import Spine
from standardwebhooks import Webhook as Official

from idem.outbox.config.http_settings import EndpointSettings
from idem.outbox.database.pool import Timeouts
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Account
from idem.outbox.domain.webhook import Webhook
from idem.outbox.http_server.serving import serve
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values import json_pointer
from idem.reconciler.webhooks import endpoint

P = json_pointer.parse
SCHEME = StandardWebhooks()


def secret(text: str) -> str:
    """A signing secret made from a text."""
    return "whsec_" + base64.b64encode(text.encode().ljust(32, b".")).decode()


FIRST, SECOND, OTHERS = secret("first"), secret("second"), secret("others")
READER = WebhookSettings(
    object=P("/data"),
    type=P("/type"),
    types=["payment.*"],
    key=(P("/data/idempotency_key"),),
    reference=P("/data/id"),
)
KEYS = {name: SCHEME.parse_secret(text) for name, text in (("first", FIRST), ("second", SECOND), ("others", OTHERS))}


def with_events(known: Catalogue, *keyless_secrets: bytes) -> Catalogue:
    """The catalogue whose provider `keyed` sends events, from two accounts; `keyless` has no secret by default."""
    keyed, keyless = known.providers["keyed"], known.providers["keyless"]
    assert isinstance(keyed, HttpProvider) and isinstance(keyless, HttpProvider)
    accounts = {**keyed.accounts, "other": Account("other", keyed.accounts["keyed"].origin)}
    secrets = {"keyed": (KEYS["first"], KEYS["second"]), "other": (KEYS["others"],)}
    events = READER.model_copy(update={"key": (P("/data/reference"),)})
    providers = {
        "keyed": replace(keyed, accounts=accounts, webhook=Webhook(SCHEME, secrets), events=READER),
        "keyless": replace(keyless, webhook=Webhook(SCHEME, {"keyless": keyless_secrets}), events=events),
    }
    return Catalogue(known.environment, {**known.providers, **providers}, known.operations)


def signed(body: bytes, id: str, *, key: str = FIRST, at: float | None = None) -> dict[str, str]:
    """The headers of a delivery, signed by the official library."""
    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    signature = Official(key).sign(id, moment, body.decode())
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signature,
    }


def event(key: object, status: str = "succeeded", reference: str = "pay_1", **more: Any) -> dict[str, Any]:
    """An event in the bank's form."""
    shown = {"id": reference, "status": status, "amount": 100, "idempotency_key": None if key is None else str(key)}
    return {"type": f"payment.{status}", "data": {**shown, **more}}


@dataclass
class Hooks:
    """A running endpoint over an operator's desk."""

    desk: Desk
    url: str
    http: httpx.AsyncClient = field(repr=False)
    endpoints: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack, repr=False)

    @property
    def spine(self) -> Spine:
        return self.desk.spine

    async def post(
        self, body: bytes, headers: Mapping[str, str] | list[tuple[str, str]], path: str = "/webhooks/keyed"
    ) -> httpx.Response:
        return await self.http.post(path, content=body, headers=headers)

    async def send(
        self, content: Any, id: str = "evt_1", *, path: str = "/webhooks/keyed", key: str = FIRST
    ) -> httpx.Response:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return await self.post(body, signed(body, id, key=key), path)

    async def fate(self, content: Any, id: str = "evt_1", **options: Any) -> str:
        """Send an event that is accepted; returns its fate."""
        answer = await self.send(content, id, **options)
        assert answer.status_code == 200, answer.text
        assert answer.json()["event"] == id
        return str(answer.json()["fate"])

    async def change(self, **changes: Any) -> None:
        """Change these fields of the provider `keyed`, here and at a new endpoint that replaces this one."""
        self.spine.change("keyed", **changes)
        self.url = await self.endpoints.enter_async_context(serving(self.spine.url, self.spine.catalogue))
        self.http.base_url = self.url

    async def tell(
        self, intent: UUID, fate: str, status: str = "succeeded", reference: str = "pay_1", *, id: str = "evt_1",
        **expected: Any,
    ) -> None:  # fmt: skip
        """Send an event about this call; checks its fate, and then the call like `expect`."""
        assert await self.fate(event(await self.key(intent), status, reference), id) == fate
        await self.expect(intent, **expected)

    async def expect(self, intent: UUID, stands: Any = None, *, id: str = "evt_1", **expected: Any) -> None:
        """Like `Spine.expect`; `stands` is the intent's state and its row's status, `fate` the event's."""
        if "fate" in expected:
            assert (await self.kept(id))["fate"] == expected.pop("fate")
        await self.spine.expect(intent, **dict(zip(("state", "status"), stands or (), strict=False)), **expected)

    async def lost(self, key: str = "k") -> tuple[UUID, str]:
        """A call whose answer was lost after the bank made the payment; returns the intent and the bank's reference."""
        intent = await self.spine.sent(key, faults=["act_then_drop"])
        await self.spine.expect(intent, state="unknown", status="unknown")
        return intent, self.spine.bank.log.payments()[-1].id

    async def key(self, intent: UUID) -> str:
        """The provider key of an intent's call."""
        row = await self.spine.one(
            "SELECT DISTINCT provider_key::text AS key FROM idem.requests WHERE intent_id = %(i)s", i=intent
        )
        return str(row["key"])

    async def kept(self, id: str = "evt_1") -> dict[str, Any]:
        """The stored event."""
        return await self.spine.one("SELECT * FROM idem.webhook_events WHERE event_id = %(e)s", e=id)

    async def transitions(self, intent: UUID) -> list[tuple[str, str, str]]:
        """Changes of an intent's state after accept, with their sources."""
        rows = await self.spine.all(
            "SELECT source, from_state, to_state FROM idem.evidence WHERE intent_id = %(i)s"
            " AND from_state <> to_state ORDER BY id",
            i=intent,
        )
        return [(row["source"], row["from_state"], row["to_state"]) for row in rows]


@contextlib.asynccontextmanager
async def serving(
    url: str, catalogue: Catalogue, settings: EndpointSettings | None = None, port: int = 0
) -> AsyncIterator[str]:
    """The address of an endpoint in this loop."""
    settings = settings or EndpointSettings(pool=12)
    bounds = Timeouts(settings.timeout, settings.timeout, 30, settings.timeout)
    database = KeptDatabase(url, name="idem-test-webhooks", size=settings.pool, timeouts=bounds)
    await database.open()
    stop, at = asyncio.Event(), asyncio.get_running_loop().create_future()
    app = endpoint.application(database, catalogue, settings)
    running = asyncio.create_task(
        serve(app, "127.0.0.1", port, stop, ready=lambda host, port: at.set_result(f"http://{host}:{port}"))
    )
    try:
        yield await asyncio.wait_for(at, 10)
    finally:
        stop.set()
        await asyncio.wait_for(running, 60)
        await database.close()


@contextlib.asynccontextmanager
async def hooking(desk: Desk, settings: EndpointSettings | None = None) -> AsyncIterator[Hooks]:
    """Hooks with their own endpoint."""
    desk.spine.catalogue = with_events(desk.spine.catalogue)
    async with (
        serving(desk.spine.url, desk.spine.catalogue, settings) as url,
        httpx.AsyncClient(base_url=url, timeout=60, limits=KEPT, trust_env=False, verify=False) as http,
    ):
        found = Hooks(desk, url, http)
        async with found.endpoints:
            yield found


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])

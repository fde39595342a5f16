"""Deliveries that nobody has signed wait for each other, in a thread of their own: no client and no loop waits for
them. Over real sockets."""

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import fix_schemes as sign
import httpx
import pytest
from fix_api import client
from fix_desk import Desk
from fix_server import KEPT
from fix_settings import with_constants
from fix_waiting import until
from fix_webhooks import OTHERS, READER, SCHEME, Hooks, event, secret, serving, signed, with_events

from idem.outbox.api.large_bodies import HEAVY, UNVERIFIED
from idem.outbox.config.http_settings import EndpointSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.webhook import Signed, Webhook
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.outbox.settle.answer_rendering import Renderer
from idem.reconciler.webhooks import embedded
from idem.reconciler.webhooks.check_queue import WAITING

ROOM = 2 * 1024 * 1024
MANY = [SCHEME.parse_secret(secret(f"of rotation {number}")) for number in range(8)]
PATHS = ["/webhooks/keyed", "/webhooks/keyed/keyed", "/webhooks/keyed/other"]


@dataclass(frozen=True)
class Held(StandardWebhooks):
    """The real scheme, whose work begins when it is let. `threads`: where it was done."""

    let: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    threads: Counter[int] = field(default_factory=Counter)
    order: list[bytes] = field(default_factory=list)

    def read(self, delivery: Signed) -> Any:
        self.threads[threading.get_ident()] += 1
        self.order.append(delivery.body)
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            assert self.let.wait(120)
        return super().read(delivery)


def secrets_of(catalogue: Catalogue, scheme: StandardWebhooks, **more: Any) -> Catalogue:
    """Both accounts have so many secrets that trying them costs more than a moment."""
    keyed: Any = catalogue.providers["keyed"]
    known = keyed.webhook.secrets
    secrets = {"keyed": (*known["keyed"], *MANY[:4]), "other": (*known["other"], *MANY[4:])}
    changed = replace(keyed, webhook=Webhook(scheme, secrets), events=READER, **more)
    return Catalogue(catalogue.environment, {**catalogue.providers, "keyed": changed}, catalogue.operations)


@contextlib.asynccontextmanager
async def holding(desk: Desk, scheme: Held, settings: EndpointSettings | None = None) -> AsyncIterator[Hooks]:
    """An endpoint with that scheme; it is let go on at the end."""
    desk.spine.catalogue = secrets_of(with_events(desk.spine.catalogue), scheme)
    async with (
        serving(desk.spine.url, desk.spine.catalogue, settings) as url,
        httpx.AsyncClient(base_url=url, timeout=120, limits=KEPT, trust_env=False, verify=False) as http,
    ):
        try:
            yield Hooks(desk, url, http)
        finally:
            scheme.let.set()


async def happens(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


def unsigned(hooks: Hooks, number: int, size: int = 7) -> asyncio.Task[httpx.Response]:
    """A delivery under a secret that no account has."""
    body = json.dumps({"x": "x" * (size - 7)}).encode()
    headers = signed(body, f"evt_{number}", key=secret("nobody's"))
    return asyncio.create_task(hooks.post(body, headers, PATHS[number % len(PATHS)]))


@pytest.mark.parametrize("size", [7, 200_000])
async def test_a_client_is_answered_while_unverified_deliveries_wait(desk: Desk, size: int) -> None:
    scheme = Held()
    async with holding(desk, scheme) as hooks, client(desk.spine) as api:
        waiting = [unsigned(hooks, number, size) for number in range(12)]
        await happens(scheme.begun)
        body = json.dumps({"amount": 100, "note": "n" * 6_000}).encode()
        for number in range(3):
            async with asyncio.timeout(60):
                answer = await api.ask(f"k{number}", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 202, answer.text
        assert (await hooks.http.get("/healthz")).status_code == 200
        assert not any(each.done() for each in waiting)
        scheme.let.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {401}
    assert not UNVERIFIED._turns and not HEAVY._turns


async def test_an_address_waits_for_one_delivery_of_another_at_most(desk: Desk) -> None:
    """All deliveries to one address have one turn in the thread together."""
    scheme = Held()
    flood, good = (json.dumps({**event(None), word: "x" * 10_000}).encode() for word in ("flood", "good"))
    async with holding(desk, scheme) as hooks:
        headers = signed(flood, "evt_flood", key=secret("nobody's"))
        many = [asyncio.create_task(hooks.post(flood, headers, "/webhooks/keyed")) for _ in range(9)]
        await happens(scheme.begun)
        one = asyncio.create_task(hooks.post(good, signed(good, "evt_1", key=OTHERS), "/webhooks/keyed/other"))
        await until(lambda: len(UNVERIFIED._turns) >= 2)
        scheme.let.set()
        assert (await one).status_code == 200
        assert {answer.status_code for answer in await asyncio.gather(*many)} == {401}
    assert scheme.order.index(good) <= 1 and len(scheme.order) == 10


async def test_what_waits_for_its_check_is_bounded(desk: Desk) -> None:
    """Small bodies too: each counts as 64 KiB."""
    scheme, most = Held(), ROOM // WAITING
    async with holding(desk, scheme, with_constants(EndpointSettings(pool=4), max_unverified=ROOM)) as hooks:
        waiting = [unsigned(hooks, number) for number in range(most + 10)]
        full, others = [], set(waiting)
        while len(full) < 10:
            done, others = await asyncio.wait(others, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            assert done
            full += [each.result() for each in done]
        assert {(answer.status_code, answer.json()["code"]) for answer in full} == {(503, "too_many_bodies")}
        scheme.let.set()
        assert [answer.status_code for answer in await asyncio.gather(*others)] == [401] * most
        assert (await hooks.send(event(None), "evt_1")).status_code == 200


async def test_what_costs_more_than_a_moment_is_checked_beside_the_loop(desk: Desk) -> None:
    """A body of a few bytes: many secrets, or one public key; few secrets are tried at once."""
    scheme = Held()
    scheme.let.set()
    async with holding(desk, scheme) as hooks:
        assert (await unsigned(hooks, 0)).status_code == 401
        assert threading.get_ident() not in scheme.threads and scheme.threads.total() == 1
        keyless = hooks.spine.provider("keyless")
        for keys, beside in (((MANY[0],), False), ((scheme.parse_secret(sign.PUBLIC),), True)):
            scheme.threads.clear()
            provider = replace(keyless, webhook=Webhook(scheme, {"keyless": keys}))
            more = {**hooks.spine.catalogue.providers, "keyless": provider}
            catalogue = Catalogue("test", more, hooks.spine.catalogue.operations)
            async with (
                serving(hooks.spine.url, catalogue) as url,
                httpx.AsyncClient(base_url=url, verify=False) as http,
            ):
                answer = await http.post(
                    "/webhooks/keyless", content=b'{"x":1}', headers=signed(b'{"x":1}', "evt_1", key=secret("no"))
                )
            assert answer.status_code == 401
            assert (threading.get_ident() not in scheme.threads) is beside


async def test_an_application_s_own_endpoint_checks_beside_its_loop_too(desk: Desk) -> None:
    scheme = Held()
    scheme.let.set()
    catalogue = secrets_of(with_events(desk.spine.catalogue), scheme)
    body = json.dumps(event(None)).encode()
    headers = signed(body, "evt_1", key=OTHERS)
    taken = await embedded.receive(desk.spine.database, catalogue, Renderer(), "keyed", headers, body, None)
    assert taken == "unmatched"
    assert scheme.threads.total() == 1 and threading.get_ident() not in scheme.threads

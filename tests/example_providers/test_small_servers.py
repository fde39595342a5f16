"""GoCardless and Square from end to end, played by small servers on real sockets.

At GoCardless a replay is answered 409 with the id of what stands, and only the payment says the rest. At Square nothing
is sent twice, and a list that is behind says nothing for a while.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from example_providers.fix_examples import ENV, lay, recorded
from example_providers.provided import Provided
from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_spine import Spine

from idem.outbox.config import load
from idem.outbox.domain.catalogue import Catalogue

PAYMENT = {"amount": 1250, "currency": "EUR", "mandate": "MD000000000001", "order": "A-7"}
PM = "PM000000000001"
CARD = {"amount": 1250, "currency": "EUR", "card": "ccof:x", "customer": "c"}


class Small(ThreadingHTTPServer):
    """A provider. `made`: what there is, by key; `drops`: so many answers to a POST get lost; `heard`: all."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], status: str) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.made: dict[str, dict[str, Any]] = {}
        self.drops = self.misses = 0
        self.status = status
        self.heard: list[str] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def shown(self) -> list[dict[str, Any]]:
        return [{**each, "status": self.status} for each in self.made.values()]

    def sends(self, path: str) -> int:
        return self.heard.count(f"POST {path}")


class Handler(BaseHTTPRequestHandler):
    server: Small

    def body(self) -> dict[str, Any]:
        self.server.heard.append(f"{self.command} {self.path}")
        read: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        return read

    def lost(self) -> bool:
        self.server.drops -= 1
        self.close_connection = self.server.drops >= 0
        return self.close_connection

    def answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


class GoCardless(Handler):
    def do_POST(self) -> None:
        body = self.body()["payments"]
        assert self.headers["authorization"] == "Bearer gocardless-token"
        assert self.headers["gocardless-version"] == "2015-07-06"
        key = self.headers["idempotency-key"]
        new = key not in self.server.made
        if new:
            self.server.made[key] = {**recorded("gocardless", "lookups", "submitted")["body"]["payments"], **body}
        if self.lost():
            return
        if new:
            self.answer(201, {"payments": self.server.shown[0]})
        else:
            self.answer(409, recorded("gocardless", "answers", "created_already")["body"])

    def do_GET(self) -> None:
        self.server.heard.append(f"GET {self.path}")
        if self.path == f"/payments/{PM}" and self.server.made:
            self.answer(200, {"payments": self.server.shown[0]})
        elif self.path.startswith("/payments?"):
            self.answer(200, {"payments": self.server.shown, "meta": {"cursors": {"before": None, "after": None}}})
        else:
            self.answer(404, recorded("gocardless", "lookups", "absent")["body"])


class Square(Handler):
    """Its list is behind by so many look-ups (`misses`), and an empty one is left out."""

    def do_POST(self) -> None:
        body = self.body()
        assert self.path == "/v2/payments" and self.headers["square-version"] == "2026-09-16"
        # No replay is promised, so whoever sends twice pays twice here.
        number = len(self.server.made)
        self.server.made[f"{body['idempotency_key']}-{number}"] = {"id": f"sq{number}", **body}
        if not self.lost():
            self.answer(200, {"payment": self.server.shown[-1]})

    def do_GET(self) -> None:
        self.server.heard.append(f"GET {self.path}")
        self.server.misses -= 1
        found = [] if self.server.misses >= 0 else self.server.shown
        self.answer(200, {"payments": found} if found else {})


def play(handler: type[Handler], status: str) -> Iterator[Small]:
    with Small(handler, status) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def serve(spine: Spine, folder: Path, name: str, origin: str, server: Small) -> Provided:
    instead = {origin: server.origin, 'environment = "production"': f'environment = "{ENVIRONMENT}"'}
    found = load(lay(name, folder, **instead), ENV)
    known = Catalogue(ENVIRONMENT, found.providers, found.operations)
    settings = spine.settings.model_copy(update={"lease": 60})
    return Provided(spine.database, spine.bank, known, Acceptor(known.operations, known.providers), spine.url, settings)


@pytest.fixture
def gocardless() -> Iterator[Small]:
    yield from play(GoCardless, "pending_submission")


@pytest.fixture
def square() -> Iterator[Small]:
    yield from play(Square, "COMPLETED")


@pytest.fixture
def shop(spine: Spine, gocardless: Small, tmp_path: Path) -> Provided:
    return serve(spine, tmp_path, "gocardless", "https://api-sandbox.gocardless.com", gocardless)


@pytest.fixture
def till(spine: Spine, square: Small, tmp_path: Path) -> Provided:
    return serve(spine, tmp_path, "square", "https://connect.squareupsandbox.com", square)


@pytest.mark.parametrize("drops", [1, 2])
async def test_a_lost_answer_is_found_by_the_conflict(shop: Provided, gocardless: Small, drops: int) -> None:
    gocardless.drops = drops
    intent = shop.paid("payments.collect", PAYMENT)
    await shop.work()
    assert (await shop.ends(intent))[0] == "unknown"
    for _ in range(drops):
        await shop.reconcile(after=40)
    # It stands, and is on its way: nobody sends it again.
    assert await shop.ends(intent) == ("in_progress", None)
    assert gocardless.sends("/payments") <= drops + 1 and len(gocardless.made) == 1
    sent = gocardless.sends("/payments")
    gocardless.status = "confirmed"
    await shop.reconcile(after=86400)
    assert await shop.ends(intent) == ("completed", 201)
    assert gocardless.heard[-1] == f"GET /payments/{PM}"
    assert gocardless.sends("/payments") == sent
    (made,) = gocardless.made.values()
    assert made["metadata"]["idem_deployment"] == ENVIRONMENT
    assert (await shop.one("SELECT provider_reference FROM idem.intents"))["provider_reference"] == PM


async def test_a_direct_debit_that_fails_after_days(shop: Provided, gocardless: Small) -> None:
    intent = shop.paid("payments.collect", PAYMENT)
    await shop.work()
    for status in ("submitted", "submitted", "failed"):
        assert await shop.ends(intent) == ("in_progress", None)
        gocardless.status = status
        await shop.reconcile(after=2 * 86400)
    assert await shop.ends(intent) == ("completed", 402)
    assert gocardless.sends("/payments") == 1 and await shop.letters(intent) == []


@pytest.mark.parametrize("misses", [0, 1, 2])
async def test_a_list_that_is_behind(till: Provided, square: Small, misses: int) -> None:
    square.drops, square.misses = 1, misses
    intent = till.paid("payments.create", CARD)
    await till.work()
    assert (await till.ends(intent))[0] == "unknown"
    for seconds in (20, 90, 600)[: misses + 1]:
        assert (await till.ends(intent))[0] == "unknown"
        await till.reconcile(after=seconds)
    assert await till.ends(intent) == ("completed", 201)
    assert (square.sends("/v2/payments"), len(square.made)) == (1, 1)
    lookups = [each for each in square.heard if each.startswith("GET ")]
    assert len(lookups) == misses + 1 and all("begin_time=" in each for each in lookups)
    (made,) = square.made.values()
    assert made["reference_id"] == made["idempotency_key"] and made["note"] == ENVIRONMENT

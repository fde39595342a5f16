"""GoCardless and Square from end to end, played by small servers on real sockets.

At GoCardless a replay is answered 409 with the id of what stands, and only the payment says the rest. At Square nothing
is sent twice, and a list that is behind says nothing for a while.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from example_providers.fix_examples import recorded
from example_providers.provided import Provided, provided
from fix_database import ENVIRONMENT
from fix_server import Asked, serving
from fix_spine import Spine

PAYMENT = {"amount": 1250, "currency": "EUR", "mandate": "MD000000000001", "order": "A-7"}
PM = "PM000000000001"
CARD = {"amount": 1250, "currency": "EUR", "card": "ccof:x", "customer": "c"}


@dataclass
class Small:
    """A provider. `made`: what there is, by key; `drops`: so many answers to a POST get lost; `heard`: all."""

    status: str
    origin: str = ""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)
    drops: int = 0
    misses: int = 0

    def __call__(self, asked: Asked) -> tuple[int, bytes] | None:
        self.heard.append(f"{asked.method} {asked.path}")
        if asked.method == "GET":
            status, body = self.look(asked)
        else:
            status, body = self.create(asked, json.loads(asked.body))
            self.drops -= 1
            if self.drops >= 0:
                return None
        return status, json.dumps(body).encode()

    def create(self, asked: Asked, body: dict[str, Any]) -> tuple[int, Any]:
        raise NotImplementedError

    def look(self, asked: Asked) -> tuple[int, Any]:
        raise NotImplementedError

    @property
    def shown(self) -> list[dict[str, Any]]:
        return [{**each, "status": self.status} for each in self.made.values()]

    def sends(self, path: str) -> int:
        return self.heard.count(f"POST {path}")


class GoCardless(Small):
    def create(self, asked: Asked, body: dict[str, Any]) -> tuple[int, Any]:
        assert asked.headers["authorization"] == "Bearer gocardless-token"
        assert asked.headers["gocardless-version"] == "2015-07-06"
        key = asked.headers["idempotency-key"]
        if key in self.made:
            return 409, recorded("gocardless", "answers", "created_already")["body"]
        self.made[key] = {**recorded("gocardless", "lookups", "submitted")["body"]["payments"], **body["payments"]}
        return 201, {"payments": self.shown[0]}

    def look(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == f"/payments/{PM}" and self.made:
            return 200, {"payments": self.shown[0]}
        if asked.path.startswith("/payments?"):
            return 200, {"payments": self.shown, "meta": {"cursors": {"before": None, "after": None}}}
        return 404, recorded("gocardless", "lookups", "absent")["body"]


class Square(Small):
    """Its list is behind by so many look-ups (`misses`), and an empty one is left out."""

    def create(self, asked: Asked, body: dict[str, Any]) -> tuple[int, Any]:
        assert asked.path == "/v2/payments" and asked.headers["square-version"] == "2026-09-16"
        # No replay is promised, so whoever sends twice pays twice here.
        number = len(self.made)
        self.made[f"{body['idempotency_key']}-{number}"] = {"id": f"sq{number}", **body}
        return 200, {"payment": self.shown[-1]}

    def look(self, asked: Asked) -> tuple[int, Any]:
        self.misses -= 1
        found = [] if self.misses >= 0 else self.shown
        return 200, {"payments": found} if found else {}


@pytest.fixture
async def gocardless() -> AsyncIterator[Small]:
    server = GoCardless("pending_submission")
    async with serving(server) as server.origin:
        yield server


@pytest.fixture
async def square() -> AsyncIterator[Small]:
    server = Square("COMPLETED")
    async with serving(server) as server.origin:
        yield server


@pytest.fixture
def shop(spine: Spine, gocardless: Small, tmp_path: Path) -> Provided:
    origin = "https://api-sandbox.gocardless.com"
    return provided(spine.database, spine.bank, spine.url, tmp_path, "gocardless", {origin: gocardless.origin})


@pytest.fixture
def till(spine: Spine, square: Small, tmp_path: Path) -> Provided:
    origin = "https://connect.squareupsandbox.com"
    return provided(spine.database, spine.bank, spine.url, tmp_path, "square", {origin: square.origin})


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

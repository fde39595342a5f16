"""Many identical requests at one moment, over two processes: one intent, one effect, and nothing else is ever said.

`IDEM_BARRIER_ROUNDS=50` is the full form.
"""

import asyncio
import contextlib
import os
import sys
from collections import Counter

import httpx
import pytest
from api_process import apis
from fix_server import KEPT
from fix_spine import Spine

from idem.outbox.tenants import tokens

ROUNDS = int(os.environ.get("IDEM_BARRIER_ROUNDS", "2"))
REQUESTS = 200


@pytest.mark.timeout(600)
async def test_ib_126_two_hundred_at_once_are_one(spine: Spine) -> None:
    """Every other round has two different bodies: one of them wins, the other is refused."""
    _, token = await spine.run(tokens.create, "t", "barrier")
    said: Counter[str] = Counter()
    with apis(spine.url, spine.bank.url, 2) as addresses:
        async with contextlib.AsyncExitStack() as stack:
            # Twenty clients, because the work of httpx's pool grows with the square of its connections.
            headers = {"Authorization": f"Bearer {token}"}
            made = [httpx.AsyncClient(headers=headers, timeout=60, limits=KEPT) for _ in range(20)]
            clients = [await stack.enter_async_context(each) for each in made]
            # Connections stand before the barrier, so that the requests leave together.
            await asyncio.gather(*(clients[n // 2 % 20].get(f"{addresses[n % 2]}/healthz") for n in range(REQUESTS)))
            for round in range(ROUNDS):
                amounts = (100, 200) if round % 2 else (100,)

                async def ask(n: int, round: int = round, amounts: tuple[int, ...] = amounts) -> httpx.Response:
                    return await clients[n // 2 % 20].post(
                        f"{addresses[n % 2]}/v1/intents/pay.keyed",
                        headers={"Idempotency-Key": f"round {round}".replace(" ", "-")},
                        json={"amount": amounts[n // 2 % len(amounts)]},
                    )

                answers = await asyncio.gather(*(ask(n) for n in range(REQUESTS)))
                codes = Counter(
                    (answer.status_code, answer.json().get("code", answer.json().get("status"))) for answer in answers
                )
                allowed = {(202, "queued"), (409, "in_progress")} | ({(422, "key_reused")} if round % 2 else set())
                assert set(codes) <= allowed, codes
                assert codes[202, "queued"] == 1, codes
                assert codes[409, "in_progress"] > 0, codes
                intents = {answer.json()["intent"] for answer in answers if "intent" in answer.json()}
                assert len(intents) == 1, intents
                await spine.work()
                again = await asyncio.gather(*(ask(n) for n in range(20)))
                assert {answer.status_code for answer in again} <= {201, 422}
                assert len({answer.content for answer in again if answer.status_code == 201}) == 1
                said += Counter({str(code): times for code, times in codes.items()})
    assert spine.effects() == ROUNDS
    assert len(await spine.all("SELECT FROM idem.intents")) == ROUNDS
    sys.stderr.write(f"\n{ROUNDS} rounds of {REQUESTS} over 2 processes: {dict(said)}\n")

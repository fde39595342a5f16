"""Sends one request until its answer is final. Copy this file: it needs only httpx.

    import retrying

    order.payment_key = order.payment_key or str(uuid4())       # new for a new intent; store it before you send
    save(order)
    with httpx.Client(base_url="https://shop.example", timeout=10) as client:
        response = retrying.send(client, "POST", "/orders/7/payment", key=order.payment_key, json={…})

It uses the same key every time: a dropped connection, a timeout, 202, 409, 429 and 5xx are not a final answer. It never
makes a key. The body must be the same each time: `json`, `data` or bytes, not a stream.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

PATIENCE = 60.0
"""Seconds until it gives up; it gives up at once if the server asks for a longer pause than is left."""
FIRST, LONGEST = 0.25, 10.0
"""Seconds between two tries if the server does not say: they double, with jitter."""


class NotFinal(Exception):
    """The time limit has passed; the effect may have happened or may still happen. Keep the key, and ask again later.

    `response`: the last one, None if there was none.
    """

    def __init__(self, key: str, response: httpx.Response | None) -> None:
        seen = "no answer came" if response is None else f"the last answer was {response.status_code}"
        super().__init__(f"not final yet under the key {key}: {seen}")
        self.key = key
        self.response = response


def send(
    client: httpx.Client, method: str, url: str, *, key: str, patience: float = PATIENCE, **request: Any
) -> httpx.Response:
    """The final answer, whether it is good news or not. Raises NotFinal; and what httpx raises for a wrong request."""
    tries = _Tries(key, patience)
    while True:
        try:
            response = client.request(method, url, headers=tries.headers(request), **_rest(request))
        except httpx.TransportError as error:
            time.sleep(tries.broken(error))
            continue
        if (pause := tries.pause(response)) is None:
            return response
        time.sleep(pause)


async def send_async(
    client: httpx.AsyncClient, method: str, url: str, *, key: str, patience: float = PATIENCE, **request: Any
) -> httpx.Response:
    """The same for asynchronous code."""
    tries = _Tries(key, patience)
    while True:
        try:
            response = await client.request(method, url, headers=tries.headers(request), **_rest(request))
        except httpx.TransportError as error:
            await asyncio.sleep(tries.broken(error))
            continue
        if (pause := tries.pause(response)) is None:
            return response
        await asyncio.sleep(pause)


def is_final(response: httpx.Response) -> bool:
    """Whether this answer is final: another try would get the same, or needs another request."""
    if response.status_code == 409:
        # With Retry-After it says "not yet" (in_progress, outcome_unknown, needs_operator), without it is an answer.
        return "retry-after" not in response.headers
    return response.status_code not in (202, 408, 425, 429) and response.status_code < 500


class _Tries:
    def __init__(self, key: str, patience: float) -> None:
        self.key = key
        self.until = time.monotonic() + patience
        self.next = FIRST
        self.last: httpx.Response | None = None

    def headers(self, request: dict[str, Any]) -> httpx.Headers:
        headers = httpx.Headers(request.get("headers"))
        headers["Idempotency-Key"] = self.key
        return headers

    def pause(self, response: httpx.Response) -> float | None:
        """Seconds until the next try; None: this is the answer."""
        if is_final(response):
            return None
        self.last = response
        return self._wait(_retry_after(response))

    def broken(self, error: httpx.TransportError) -> float:
        if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
            raise error  # the request itself is wrong, and stays so
        return self._wait(None)

    def _wait(self, said: float | None) -> float:
        # Waits at least as long as the server asks, with jitter, so that clients do not retry all at once.
        pause = self.next * random.uniform(0.5, 1.0) if said is None else said * random.uniform(1.0, 1.1)
        self.next = min(self.next * 2, LONGEST)
        if time.monotonic() + pause > self.until:
            raise NotFinal(self.key, self.last)
        return pause


def _retry_after(response: httpx.Response) -> float | None:
    said = response.headers.get("retry-after", "").strip()
    if said.isdecimal():
        return float(said)
    try:
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def _rest(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != "headers"}

"""A large answer is read in a thread: the event loop of a worker or reconciler serves all lanes meanwhile."""

import ast
import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fix_source import trees
from fix_waiting import stopping
from providers.fix_lists import provider

from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.providers.http import HttpProvider
from idem.outbox.values import clock
from idem.outbox.values.threads import LIGHT
from idem.outcomes import Absent, Succeeded
from idem.sending import Question

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
POST = FrozenRequest("POST", "/things", {"idempotency-key": KEY}, b'{"amount":1}')
READERS = ("classify", "read_lookup", "next_page", "read_cancel", "read_listing", "read_account")
SETTINGS: dict[str, Any] = {
    "object": {"reference": "/id", "status": "/status", "statuses": {"final": ["succeeded"]}},
    "errors": {"shape": "/error/code"},
    "lookup": {
        "by_key": {
            "path": "/things?key={idem.key}", "object": "/data/0", "match": "/key",
            "page": {"style": "after_id", "parameter": "after", "more": "/has_more"},
        }
    },
    "cancel_by_key": {"path": "/cancel", "body": {"key": "{idem.key}"}},
    "list": {"path": "/things?since={idem.since}", "items": "/data", "page": {"style": "after_id",
             "parameter": "after", "more": "/has_more"}, "reference": "/id"},
    "account_check": {"path": "/account", "at": "/id"},
}  # fmt: skip

threads: dict[str, set[int]] = defaultdict(set)
"""Where each function of the contract ran."""


def recorded(name: str) -> Callable[..., Any]:
    function = getattr(HttpProvider, name)

    def record(*given: Any) -> Any:
        threads[name].add(threading.get_ident())
        return function(*given)

    return record


Recording = type("Recording", (HttpProvider,), {name: recorded(name) for name in READERS})


def answering(filler: str) -> Callable[[httpx.Request], httpx.Response]:
    """A provider whose answers are all as long as that."""

    def answer(request: httpx.Request) -> httpx.Response:
        more = "after" not in request.url.params
        things = {"data": [{"id": "p1" if more else "p2", "key": "theirs"}], "has_more": more}
        paid = {"id": "p1", "status": "succeeded"}
        cancelled = request.url.path == "/cancel"
        body = {"error": {"code": "odd"}} if cancelled else things if request.url.query else paid
        return httpx.Response(400 if cancelled else 200, json={**body, "filler": filler})

    return answer


def opened(origin: str) -> Lane:
    plain = provider('accounts.main = { origin = "ORIGIN" }', origin, **SETTINGS)
    known = Recording(**{name: getattr(plain, name) for name in HttpProvider.__dataclass_fields__})
    return Lane(known, known.accounts["main"], slots=2, margin=0.5)


@pytest.mark.parametrize(("length", "aside"), [(LIGHT, True), (0, False)])
async def test_every_answer_of_a_large_body_is_read_beside_the_loop(mocked: Any, length: int, aside: bool) -> None:
    threads.clear()
    lane = opened(mocked(answering("x" * length)).origin)
    question, ends = Question(KEY, None, awaiting=False), clock.boottime() + 60
    async with stopping(lane):
        outcome, _ = await lane.send(1, POST, lease_ends=ends, start=lambda: True)
        look, _ = await lane.ask(question, lease_ends=ends)
        await lane.cancel(question, lease_ends=ends)
        account, _ = await lane.whose()
        listed = [item.reference async for item in lane.list(0, 100)]
    assert (outcome, look, account, listed) == (Succeeded("p1", "succeeded"), Absent(), "p1", ["p1", "p2"])
    assert set(threads) == set(READERS)
    loop = threading.get_ident()
    assert {name: loop in where for name, where in threads.items()} == dict.fromkeys(READERS, not aside)
    assert all(len(where) == 1 for where in threads.values())


async def test_a_cancelled_task_still_gets_what_a_large_answer_says(mocked: Any) -> None:
    """What the provider has said must reach the row; the task is stopped afterwards."""
    lane = opened(mocked(answering("x" * LIGHT)).origin)
    begun, go_on = threading.Event(), threading.Event()
    classify = lane.provider.classify

    def held(response: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return classify(response)

    object.__setattr__(lane.provider, "classify", held)
    task = asyncio.create_task(lane.send(1, POST, lease_ends=clock.boottime() + 60, start=lambda: True))
    try:
        while not begun.is_set():
            await asyncio.sleep(0.01)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        outcome, _ = await task
        assert outcome == Succeeded("p1", "succeeded")
        assert task.cancelling() == 3
    finally:
        go_on.set()
        await lane.close()


BESIDE = {
    ("outbox/calls/lane.py", "_classified"),
    ("outbox/calls/lookup_pages.py", "_read"),
    ("outbox/calls/lookup_pages.py", "_read_cancel"),
    ("outbox/calls/lookup_pages.py", "whose"),
    ("outbox/calls/lookup_pages.py", "_page"),
    ("reconciler/webhooks/waiting_events.py", "_event"),
    ("reconciler/webhooks/unmatched.py", "_pointers"),
    ("reconciler/webhooks/delivery.py", "verified"),
}
"""The functions that are handed to `process.aside`, or hand the reader to it."""


def test_no_other_place_reads_what_a_provider_has_sent() -> None:
    found: set[tuple[str, str]] = set()
    reading = {*READERS, "read_events", "read_event"}
    holding = rf"\.({'|'.join(reading)})\b"
    for where, tree in trees("outbox", "reconciler", "sweeper", "cli", "idem", holding=holding):
        if where.startswith("outbox/providers/"):
            continue
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                names = {each.attr for each in ast.walk(function) if isinstance(each, ast.Attribute)}
                if names & reading:
                    found.add((where, function.name))
    assert found == BESIDE

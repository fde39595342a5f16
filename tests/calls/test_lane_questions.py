"""Lists that are walked page after page, and cancels, over real sockets."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fix_waiting import until
from providers.fix_lists import SQUARE, STRIPE, provider

from idem.outbox.calls import lookup_pages
from idem.outbox.calls.lane import Lane
from idem.outbox.calls.lookup_pages import ListFailed
from idem.outbox.values import clock
from idem.outcomes import Absent, CouldNotAsk, Pending, Succeeded
from idem.sending import Question
from idem.testing.bank import Bank, BankAccount, BankSettings

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
MANY = 500
LIMIT = 100


def lease(seconds: float = 60.0) -> float:
    return clock.boottime() + seconds


def asked(**more: Any) -> Question:
    import time

    return Question(**{"provider_key": KEY, "reference": None, "awaiting": False, "sent_at": time.time(), **more})


def opened(psp: Any, *, slots: int = 2, **more: Any) -> Lane:
    return Lane(psp, psp.accounts["main"], slots=slots, margin=0.5, **more)


def thing(number: int, *, key: str | None = None, status: str = "succeeded", id: str | None = None) -> dict[str, Any]:
    return {"id": id or f"p_{number}", "status": status, "key": key or f"theirs-{number}", "created": 1000 + number}


Page = Callable[[dict[str, str], list[Any]], tuple[int, dict[str, Any], dict[str, str]]]


def after_id(query: dict[str, str], items: list[Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    ids = [item["id"] for item in items]
    begin = ids.index(query["after"]) + 1 if "after" in query else 0
    return 200, {"data": items[begin : begin + LIMIT], "has_more": begin + LIMIT < len(items)}, {}


def cursor(query: dict[str, str], items: list[Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    begin = int(query.get("cursor", "c0")[1:])
    following = f"c{begin + LIMIT}" if begin + LIMIT < len(items) else None
    return 200, {"data": items[begin : begin + LIMIT], "next": following}, {}


def link(query: dict[str, str], items: list[Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    number = int(query.get("page", "1"))
    page = items[(number - 1) * LIMIT : number * LIMIT]
    more = {"link": f'</things?page={number + 1}>; rel="next"'} if number * LIMIT < len(items) else {}
    return 200, {"data": page}, more


def offset(query: dict[str, str], items: list[Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    begin = int(query.get("from", "0"))
    return 200, {"data": items[begin : begin + LIMIT]}, {}


STYLES: dict[str, tuple[Page, dict[str, Any]]] = {
    "after_id": (after_id, {"style": "after_id", "parameter": "after", "more": "/has_more"}),
    "cursor": (cursor, {"style": "cursor", "parameter": "cursor", "next": "/next"}),
    "link": (link, {"style": "link"}),
    "offset": (offset, {"style": "offset", "parameter": "from"}),
}


def listing(page: Page, items: list[Any], before: Callable[[int], Awaitable[None]] | None = None) -> Any:
    """A server of a list: each connection gets one page. `before` may hold up or spoil the n-th request."""
    count = 0

    async def handler(wire: Any) -> None:
        nonlocal count
        head = await wire.request()
        count += 1
        if before is not None:
            await before(count)
        target = urlsplit(head.split()[1].decode())
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        await say(wire, *page(query, items))

    return handler


async def say(wire: Any, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{lines}content-length: {len(content)}\r\n\r\n"
    await wire.say(head.encode() + content)


def asking(origin: str, page: dict[str, Any], *, events: bool = False, **more: Any) -> Any:
    """A provider with a list of its things, which carry our key; by `events` the list is read as one of events."""
    way = {"path": "/things?x=1", "page": page}
    by_events = {"by_events": {**way, "items": "/data", "match": "/key", **more.pop("of_events", {})}}
    by_key = {"by_key": {**way, "object": "/data/0", "match": "/key"}}
    listed = {
        "path": "/things?since={idem.since}",
        "items": "/data",
        "key": "/key",
        "created": "/created",
        "page": page,
    }
    return provider(STRIPE, origin, lookup=by_events if events else by_key, list=listed, deadline="2s", **more)


@pytest.mark.parametrize("events", [False, True], ids=["objects", "events"])
@pytest.mark.parametrize("style", STYLES)
async def test_what_is_on_the_last_of_five_pages_is_found(serve: Any, style: str, events: bool) -> None:
    page, settings = STYLES[style]
    items = [thing(number) for number in range(MANY - 1)] + [thing(MANY, key=KEY)]
    server = await serve(listing(page, items))
    lane = opened(asking(server.origin, settings, events=events))
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert look == Succeeded(f"p_{MANY}", "succeeded")
    assert (seen.http_status, seen.copies, len(server.full)) == (200, 1, 5)
    await lane.close()


@pytest.mark.parametrize("style", STYLES)
async def test_what_is_on_none_of_them_is_absent_and_only_after_the_last(serve: Any, style: str) -> None:
    page, settings = STYLES[style]
    server = await serve(listing(page, [thing(number) for number in range(MANY)]))
    lane = opened(asking(server.origin, settings))
    assert (await lane.ask(asked(), lease_ends=lease()))[0] == Absent()
    # An offset ends with a page that is empty.
    assert len(server.full) == (6 if style == "offset" else 5)
    await lane.close()


@pytest.mark.parametrize("style", STYLES)
async def test_a_list_that_is_longer_than_what_is_read_says_nothing(serve: Any, style: str) -> None:
    page, settings = STYLES[style]
    server = await serve(listing(page, [thing(number) for number in range(MANY)]))
    lane = opened(asking(server.origin, {**settings, "most": 3}))
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "the list is longer than the 3 pages that are read")
    assert len(server.full) == 3
    await lane.close()


async def test_a_cursor_that_comes_again_ends_the_walk_without_an_absence(serve: Any) -> None:
    def circle(query: dict[str, str], items: list[Any]) -> Any:
        return 200, {"data": items, "next": {"a": "b", "b": "c", "c": "a"}[query.get("cursor", "c")]}, {}

    server = await serve(listing(circle, [thing(1)]))
    lane = opened(asking(server.origin, STYLES["cursor"][1]))
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "the list is circular")
    assert len(server.full) == 4
    await lane.close()


async def test_a_page_that_is_always_the_first_one_is_no_end(serve: Any) -> None:
    """A provider that does not know the parameter shows its first page for ever."""

    def ignorant(query: dict[str, str], items: list[Any]) -> Any:
        return after_id({}, items)

    server = await serve(listing(ignorant, [thing(number) for number in range(MANY)]))
    lane = opened(asking(server.origin, STYLES["after_id"][1]))
    assert (await lane.ask(asked(), lease_ends=lease()))[0] == CouldNotAsk()
    await lane.close()


SPOILED: dict[str, Any] = {
    "5xx": lambda wire: say(wire, 500, {}),
    "401": lambda wire: say(wire, 401, {"error": {"type": "auth"}}),
    "closed": lambda wire: asyncio.sleep(0),
    "cut short": lambda wire: wire.say(b'HTTP/1.1 200 X\r\ncontent-length: 99\r\n\r\n{"data": [], "has_more": false}'),
    "not a list": lambda wire: say(wire, 200, {"data": None, "has_more": False}),
    "no word about the end": lambda wire: say(wire, 200, {"data": []}),
    "a proxy's page": lambda wire: say(wire, 200, b"<html></html>"),
    "404": lambda wire: say(wire, 404, {"error": {"type": "invalid_request_error"}}),
}


@pytest.mark.parametrize("how", SPOILED)
async def test_a_page_that_fails_is_no_absence(serve: Any, how: str) -> None:
    async def handler(wire: Any) -> None:
        head = await wire.request()
        if len(wire.server.full) == 3:
            await SPOILED[how](wire)
        else:
            query = {name: values[-1] for name, values in parse_qs(urlsplit(head.split()[1].decode()).query).items()}
            await say(wire, *after_id(query, [thing(number) for number in range(MANY)]))

    server = await serve(handler)
    lane = opened(asking(server.origin, STYLES["after_id"][1]))
    look, _ = await lane.ask(asked(), lease_ends=lease())
    assert look == CouldNotAsk()
    assert len(server.full) == 3
    await lane.close()


@pytest.mark.parametrize("where", ["header", "body"])
async def test_a_next_page_at_another_origin_is_not_fetched(serve: Any, where: str) -> None:
    stranger = await serve(listing(link, []))

    def elsewhere(query: dict[str, str], items: list[Any]) -> Any:
        address = f"{stranger.origin}/things?page=2"
        return 200, {"data": items, "next": address}, {"link": f'<{address}>; rel="next"'}

    server = await serve(listing(elsewhere, [thing(1)]))
    page = {"style": "link"} if where == "header" else {"style": "link", "next": "/next"}
    lane = opened(asking(server.origin, page))
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "the next page of the list is at another origin than the account's")
    assert (len(server.full), stranger.connections) == (1, 0)
    await lane.close()


async def test_a_walk_that_outlives_its_lease_says_nothing(serve: Any) -> None:
    async def slow(count: int) -> None:
        await asyncio.sleep(0.5)

    server = await serve(listing(after_id, [thing(number) for number in range(MANY)], slow))
    lane = opened(asking(server.origin, STYLES["after_id"][1]))
    look, seen = await lane.ask(asked(), lease_ends=lease(3.4))
    assert look == CouldNotAsk()
    assert "given back" in (seen.note or "")
    assert 1 <= len(server.full) < 5
    assert lane.room() == 2, "that is no fault of the provider"
    await lane.close()


async def test_a_walk_that_is_cancelled_between_two_pages_says_nothing(serve: Any) -> None:
    async def slow(count: int) -> None:
        await asyncio.sleep(0.1)

    server = await serve(listing(after_id, [thing(number) for number in range(MANY)], slow))
    lane = opened(asking(server.origin, STYLES["after_id"][1]))
    task = asyncio.create_task(lane.ask(asked(), lease_ends=lease()))
    await until(lambda: len(server.full) == 2)
    task.cancel()
    assert (await task)[0] == CouldNotAsk()
    assert lane.room() == 2
    await lane.close()


async def test_every_page_takes_a_slot(serve: Any) -> None:
    running = most = 0

    async def slow(count: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    server = await serve(listing(after_id, [thing(number) for number in range(MANY)], slow))
    lane = opened(asking(server.origin, STYLES["after_id"][1]), slots=1)
    lookups = await asyncio.gather(*(lane.ask(asked(), lease_ends=lease()) for _ in range(3)))
    assert [look for look, _ in lookups] == [Absent()] * 3
    assert (most, len(server.full)) == (1, 15)
    await lane.close()


async def test_oldest_first_the_newest_word_is_on_the_last_page(serve: Any) -> None:
    """localstripe lists its events in this order."""
    items = [thing(number) for number in range(MANY)]
    items[7] = thing(7, key=KEY, status="processing", id="p_7")
    items[250] = thing(250, key=KEY, status="requires_action", id="p_7")
    items[251] = thing(251, key=KEY, status="succeeded", id="p_7")
    for number, item in enumerate(items):
        item["place"] = f"e{number}"
    server = await serve(listing(offset, items))
    order = {"of_events": {"order": "oldest_first"}}
    lane = opened(asking(server.origin, STYLES["offset"][1], events=True, **order))
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.copies) == (Succeeded("p_7", "succeeded"), 1)
    assert len(server.full) == 6
    items[400] = thing(400, key=KEY, status="processing", id="p_another")
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.copies) == (Succeeded("p_7", "succeeded"), 2)
    newest = {"of_events": {"order": "newest_first"}}
    lane = opened(asking(server.origin, STYLES["offset"][1], events=True, **newest))
    assert (await lane.ask(asked(), lease_ends=lease()))[0] == Pending("p_7", "processing")
    await lane.close()


@pytest.mark.parametrize("style", STYLES)
async def test_the_listing_gives_every_object_once(serve: Any, style: str) -> None:
    page, settings = STYLES[style]
    server = await serve(listing(page, [thing(number) for number in range(MANY)]))
    lane = opened(asking(server.origin, settings))
    found = [item async for item in lane.list(10.0, 20.0)]
    assert [item.reference for item in found] == [f"p_{number}" for number in range(MANY)]
    assert [item.key for item in found] == [f"theirs-{number}" for number in range(MANY)]
    assert {item.ours for item in found} == {False}
    assert (found[0].said, found[0].created) == (Succeeded("p_0", "succeeded"), 1000.0)
    assert server.full[0].split()[1] == b"/things?since=10"
    await lane.close()


async def test_a_listing_survives_what_passes_and_tells_what_does_not(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_pages, "AGAIN", (0.01, 0.02))
    troubles: list[str] = ["5xx", "closed"]

    async def handler(wire: Any) -> None:
        head = await wire.request()
        if b"after" in head and troubles:
            return await SPOILED[troubles.pop()](wire)
        query = {name: values[-1] for name, values in parse_qs(urlsplit(head.split()[1].decode()).query).items()}
        await say(wire, *after_id(query, [thing(number) for number in range(MANY)]))

    server = await serve(handler)
    lane = opened(asking(server.origin, STYLES["after_id"][1]))
    assert len([item async for item in lane.list(0, 1)]) == MANY
    for how, words in [
        ("5xx", "HTTP 500"),
        ("401", "HTTP 401"),
        ("closed", "after the request began"),
        ("a proxy's page", "HTTP 200"),
        ("no word about the end", "/has_more"),
    ]:
        troubles[:] = [how] * 3
        seen = []
        with pytest.raises(ListFailed, match=words) as raised:
            async for item in lane.list(0, 1):
                seen.append(item)
        assert "page 2" in str(raised.value)
        assert len(seen) == LIMIT, "what was seen was seen, but it is not all"
    await lane.close()


async def test_a_listing_that_goes_in_a_circle_or_is_too_long_fails(serve: Any) -> None:
    def circle(query: dict[str, str], items: list[Any]) -> Any:
        return 200, {"data": items, "next": {"a": "b", "b": "c", "c": "a"}[query.get("cursor", "c")]}, {}

    server = await serve(listing(circle, [thing(1)]))
    lane = opened(asking(server.origin, STYLES["cursor"][1]))
    with pytest.raises(ListFailed, match="back to an earlier one"):
        [item async for item in lane.list(0, 1)]
    server = await serve(listing(cursor, [thing(number) for number in range(MANY)]))
    lane = opened(asking(server.origin, {**STYLES["cursor"][1], "most": 2}))
    with pytest.raises(ListFailed, match="longer than the 2 pages"):
        [item async for item in lane.list(0, 1)]
    lane = opened(provider(SQUARE, server.origin))
    with pytest.raises(ListFailed, match=r"\[providers.psp.list\]"):
        [item async for item in lane.list(0, 1)]
    await lane.close()


async def test_a_listing_that_is_cancelled_is_cancelled(drinking: Any) -> None:
    lane = opened(asking(drinking.origin, STYLES["link"][1]))

    async def walk() -> None:
        [item async for item in lane.list(0, 1)]

    task = asyncio.create_task(walk())
    await until(lambda: drinking.stray)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lane.room() == 2
    await lane.close()


def cancelling(origin: str) -> Lane:
    return opened(provider(SQUARE, origin, deadline="2s"))


async def test_a_cancel_is_done_or_too_late_or_says_nothing(serve: Any) -> None:
    answers = [
        (200, {}),
        (409, {"errors": [{"code": "X"}], "payment": {"id": "p", "status": "COMPLETED"}}),
        (503, {}),
    ]

    async def handler(wire: Any) -> None:
        await wire.request()
        await say(wire, *answers[len(wire.server.full) - 1])

    server = await serve(handler)
    lane = cancelling(server.origin)
    lookups = [await lane.cancel(asked(), lease_ends=lease()) for _ in answers]
    assert [look for look, _ in lookups] == [Absent(), Succeeded("p", "COMPLETED"), CouldNotAsk()]
    assert [seen.http_status for _, seen in lookups] == [200, 409, 503]
    assert all(seen.started and seen.elapsed is not None for _, seen in lookups)
    assert server.full[0].startswith(b"POST /v2/payments/cancel HTTP/1.1")
    assert server.full[0].endswith(f'{{"idempotency_key":"{KEY}"}}'.encode())
    await lane.close()


async def test_a_cancel_counts_as_a_write_does(serve: Any) -> None:
    async def refuses(wire: Any) -> None:
        await wire.request()
        await say(wire, 401, {"errors": [{"code": "UNAUTHORIZED"}]})

    server = await serve(refuses)
    lane = cancelling(server.origin)
    for number in range(5):
        look, _ = await lane.cancel(asked(provider_key=f"key-{number}"), lease_ends=lease())
        assert look == CouldNotAsk()
    assert lane.room() == 0, "five rows refused for our credentials open the breaker"
    look, seen = await lane.cancel(asked(), lease_ends=lease())
    assert isinstance(look, CouldNotAsk) and look.retry_after is not None
    assert seen.note == "the breaker is open"
    assert len(server.full) == 5
    await lane.close()


async def test_a_cancel_that_was_lost_or_never_sent_says_nothing(serve: Any) -> None:
    async def closes(wire: Any) -> None:
        await wire.request()

    server = await serve(closes)
    lane = cancelling(server.origin)
    look, seen = await lane.cancel(asked(), lease_ends=lease())
    assert (look, seen.started) == (CouldNotAsk(), True)
    look, seen = await lane.cancel(asked(), lease_ends=clock.boottime())
    assert (look, seen.started) == (CouldNotAsk(), False)
    look, seen = await opened(provider(STRIPE, server.origin)).cancel(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "this provider cannot cancel by key")
    assert len(server.full) == 1
    await lane.close()


BANK = Path(__file__).with_name("lane_questions_bank.toml").read_text()


async def test_the_banks_own_list_is_walked(tmp_path: Any) -> None:
    from idem.outbox.domain.contract import ProviderRequest

    settings = BankSettings(accounts=(BankAccount(),), log=tmp_path / "bank.jsonl")
    with Bank(settings).in_thread() as bank:
        psp = provider(BANK, bank.url)
        credentials = {"authorization": "Bearer main-token"}
        account = type(psp.accounts["main"])("main", bank.url, credentials)
        lane = Lane(psp, account, slots=2, margin=0.5)
        for number in range(10):
            body = {"amount": 100 + number, "currency": "eur", "reference": f"r-{number}"}
            made = psp.freeze(ProviderRequest("POST", "/payments", body), f"k-{number}")
            outcome, _ = await lane.send(number, made, lease_ends=lease(), start=lambda: True)
            assert isinstance(outcome, Succeeded)
        look, _ = await lane.ask(asked(provider_key="r-9"), lease_ends=lease())
        assert look == outcome
        assert (await lane.ask(asked(provider_key="r-10"), lease_ends=lease()))[0] == Absent()
        now = asked().sent_at or 0.0
        found = [item async for item in lane.list(now - 60, now + 60)]
        assert [item.key for item in found] == [f"k-{number}" for number in range(10)]
        assert all(isinstance(item.said, Succeeded) and item.created and item.ours is None for item in found)
        assert [item async for item in lane.list(now + 60, now + 120)] == []
        await lane.close()

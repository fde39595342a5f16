"""Lists that are walked page after page, and cancels."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest
from fix_respx import Mocked
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


def circle(query: dict[str, str], items: list[Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    return 200, {"data": items, "next": {"a": "b", "b": "c", "c": "a"}[query.get("cursor", "c")]}, {}


STYLES: dict[str, tuple[Page, dict[str, Any]]] = {
    "after_id": (after_id, {"style": "after_id", "parameter": "after", "more": "/has_more"}),
    "cursor": (cursor, {"style": "cursor", "parameter": "cursor", "next": "/next"}),
    "link": (link, {"style": "link"}),
    "offset": (offset, {"style": "offset", "parameter": "from"}),
}
AFTER_ID, CURSOR = STYLES["after_id"][1], STYLES["cursor"][1]
THINGS = [thing(number) for number in range(MANY)]


def said(status: int, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, json=body, headers=headers)


def listing(page: Page, items: list[Any] = THINGS, wait: float = 0) -> Callable[[httpx.Request], Any]:
    """A provider of a list, who takes his time for each page."""

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(wait)
        return said(*page(dict(request.url.params), items))

    return answer


def asking(psp: Mocked, page: dict[str, Any], *, events: bool = False, slots: int = 2, **more: Any) -> Lane:
    """A lane to a provider with a list of its things, which carry our key; by `events` it is read as one of events."""
    way = {"path": "/things?x=1", "page": page}
    by_events = {"by_events": {**way, "items": "/data", "match": "/key", **more}}
    by_key = {"by_key": {**way, "object": "/data/0", "match": "/key"}}
    listed = {
        "path": "/things?since={idem.since}",
        "items": "/data",
        "key": "/key",
        "created": "/created",
        "page": page,
    }
    lookup = by_events if events else by_key
    return opened(provider(STRIPE, psp.origin, lookup=lookup, list=listed, deadline="2s"), slots=slots)


@pytest.mark.parametrize("events", [False, True], ids=["objects", "events"])
@pytest.mark.parametrize("style", STYLES)
async def test_what_is_on_the_last_of_five_pages_is_found(mocked: Any, style: str, events: bool) -> None:
    page, settings = STYLES[style]
    psp = mocked(listing(page, [*THINGS[:-1], thing(MANY, key=KEY)]))
    look, seen = await asking(psp, settings, events=events).ask(asked(), lease_ends=lease())
    assert look == Succeeded(f"p_{MANY}", "succeeded")
    assert (seen.http_status, seen.copies, len(psp.requests)) == (200, 1, 5)


@pytest.mark.parametrize("style", STYLES)
async def test_what_is_on_none_of_them_is_absent_and_only_after_the_last(mocked: Any, style: str) -> None:
    page, settings = STYLES[style]
    psp = mocked(listing(page))
    assert (await asking(psp, settings).ask(asked(), lease_ends=lease()))[0] == Absent()
    # An offset ends with a page that is empty.
    assert len(psp.requests) == (6 if style == "offset" else 5)


@pytest.mark.parametrize("style", STYLES)
async def test_a_list_that_is_longer_than_what_is_read_says_nothing(mocked: Any, style: str) -> None:
    page, settings = STYLES[style]
    psp = mocked(listing(page))
    look, seen = await asking(psp, {**settings, "most": 3}).ask(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "the list is longer than the 3 pages that are read")
    assert len(psp.requests) == 3


async def test_a_cursor_that_comes_again_ends_the_walk_without_an_absence(mocked: Any) -> None:
    psp = mocked(listing(circle, [thing(1)]))
    look, seen = await asking(psp, CURSOR).ask(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "the list is circular")
    assert len(psp.requests) == 4


async def test_a_page_that_is_always_the_first_one_is_no_end(mocked: Any) -> None:
    """A provider that does not know the parameter shows its first page for ever."""
    psp = mocked(listing(lambda query, items: after_id({}, items)))
    assert (await asking(psp, AFTER_ID).ask(asked(), lease_ends=lease()))[0] == CouldNotAsk()


async def cut() -> AsyncIterator[bytes]:
    yield b'{"data": [], "has_more": false}'
    raise httpcore.RemoteProtocolError("the rest of 99 bytes")


SPOILED: dict[str, dict[str, Any] | None] = {
    "5xx": {"status_code": 500, "json": {}},
    "401": {"status_code": 401, "json": {"error": {"type": "auth"}}},
    "closed": None,
    "cut short": {"status_code": 200, "content": "cut"},
    "not a list": {"status_code": 200, "json": {"data": None, "has_more": False}},
    "no word about the end": {"status_code": 200, "json": {"data": []}},
    "a proxy's page": {"status_code": 200, "content": b"<html></html>"},
    "404": {"status_code": 404, "json": {"error": {"type": "invalid_request_error"}}},
}


def spoilt(how: str) -> httpx.Response:
    answer = SPOILED[how]
    if answer is None:
        raise httpcore.RemoteProtocolError
    return httpx.Response(**(answer | {"content": cut()} if how == "cut short" else answer))


@pytest.mark.parametrize("how", SPOILED)
async def test_a_page_that_fails_is_no_absence(mocked: Any, how: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return spoilt(how) if len(psp.requests) == 3 else said(*after_id(dict(request.url.params), THINGS))

    psp = mocked(answer)
    look, _ = await asking(psp, AFTER_ID).ask(asked(), lease_ends=lease())
    assert look == CouldNotAsk()
    assert len(psp.requests) == 3


@pytest.mark.parametrize("page", [{"style": "link"}, {"style": "link", "next": "/next"}], ids=["header", "body"])
async def test_a_next_page_at_another_origin_is_not_fetched(mocked: Any, page: dict[str, Any]) -> None:
    stranger = mocked(listing(link, []))

    def elsewhere(query: dict[str, str], items: list[Any]) -> Any:
        address = f"{stranger.origin}/things?page=2"
        return 200, {"data": items, "next": address}, {"link": f'<{address}>; rel="next"'}

    psp = mocked(listing(elsewhere, [thing(1)]))
    look, seen = await asking(psp, page).ask(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "the next page of the list is at another origin than the account's")
    assert (len(psp.requests), stranger.requests) == (1, [])


async def test_a_walk_that_outlives_its_lease_says_nothing(mocked: Any) -> None:
    psp = mocked(listing(after_id, wait=0.5))
    lane = asking(psp, AFTER_ID)
    look, seen = await lane.ask(asked(), lease_ends=lease(3.4))
    assert look == CouldNotAsk()
    assert "given back" in (seen.note or "")
    assert 1 <= len(psp.requests) < 5
    assert lane.room() == 2, "that is no fault of the provider"


async def test_a_walk_that_is_cancelled_between_two_pages_says_nothing(mocked: Any) -> None:
    psp = mocked(listing(after_id, wait=0.1))
    lane = asking(psp, AFTER_ID)
    task = asyncio.create_task(lane.ask(asked(), lease_ends=lease()))
    await until(lambda: len(psp.requests) == 2)
    task.cancel()
    assert (await task)[0] == CouldNotAsk()
    assert lane.room() == 2


async def test_every_page_takes_a_slot(mocked: Any) -> None:
    running = most = 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return said(*after_id(dict(request.url.params), THINGS))

    psp = mocked(slow)
    lane = asking(psp, AFTER_ID, slots=1)
    lookups = await asyncio.gather(*(lane.ask(asked(), lease_ends=lease()) for _ in range(3)))
    assert [look for look, _ in lookups] == [Absent()] * 3
    assert (most, len(psp.requests)) == (1, 15)


async def test_oldest_first_the_newest_word_is_on_the_last_page(mocked: Any) -> None:
    """localstripe lists its events in this order."""
    items = [{**item, "place": f"e{number}"} for number, item in enumerate(THINGS)]
    for place, status in ((7, "processing"), (250, "requires_action"), (251, "succeeded")):
        items[place] |= thing(place, key=KEY, status=status, id="p_7")
    psp = mocked(listing(offset, items))
    lane = asking(psp, STYLES["offset"][1], events=True, order="oldest_first")
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.copies) == (Succeeded("p_7", "succeeded"), 1)
    assert len(psp.requests) == 6
    items[400] = thing(400, key=KEY, status="processing", id="p_another")
    look, seen = await lane.ask(asked(), lease_ends=lease())
    assert (look, seen.copies) == (Succeeded("p_7", "succeeded"), 2)
    lane = asking(psp, STYLES["offset"][1], events=True, order="newest_first")
    assert (await lane.ask(asked(), lease_ends=lease()))[0] == Pending("p_7", "processing")


@pytest.mark.parametrize("style", STYLES)
async def test_the_listing_gives_every_object_once(mocked: Any, style: str) -> None:
    page, settings = STYLES[style]
    psp = mocked(listing(page))
    found = [item async for item in asking(psp, settings).list(10.0, 20.0)]
    assert [item.reference for item in found] == [f"p_{number}" for number in range(MANY)]
    assert [item.key for item in found] == [f"theirs-{number}" for number in range(MANY)]
    assert {item.ours for item in found} == {False}
    assert (found[0].said, found[0].created) == (Succeeded("p_0", "succeeded"), 1000.0)
    assert psp.requests[0].url.raw_path == b"/things?since=10"


async def test_a_listing_survives_what_passes_and_tells_what_does_not(
    mocked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_pages, "AGAIN", (0.01, 0.02))
    troubles: list[str] = ["5xx", "closed"]

    def answer(request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        return spoilt(troubles.pop()) if "after" in query and troubles else said(*after_id(query, THINGS))

    lane = asking(mocked(answer), AFTER_ID)
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


async def test_a_listing_that_goes_in_a_circle_or_is_too_long_fails(mocked: Any) -> None:
    psp = mocked(listing(cursor))
    for lane, words in [
        (asking(mocked(listing(circle, [thing(1)])), CURSOR), "back to an earlier one"),
        (asking(psp, {**CURSOR, "most": 2}), "longer than the 2 pages"),
        (opened(provider(SQUARE, psp.origin)), r"\[providers.psp.list\]"),
    ]:
        with pytest.raises(ListFailed, match=words):
            [item async for item in lane.list(0, 1)]


async def test_a_listing_that_is_cancelled_is_cancelled(mocked: Any) -> None:
    psp = mocked(listing(link, wait=30))
    lane = asking(psp, STYLES["link"][1])

    async def walk() -> None:
        [item async for item in lane.list(0, 1)]

    task = asyncio.create_task(walk())
    await until(lambda: psp.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lane.room() == 2


def cancelling(psp: Mocked) -> Lane:
    return opened(provider(SQUARE, psp.origin, deadline="2s"))


async def test_a_cancel_is_done_or_too_late_or_says_nothing(mocked: Any) -> None:
    answers = [(200, {}), (409, {"errors": [{"code": "X"}], "payment": {"id": "p", "status": "COMPLETED"}}), (503, {})]
    psp = mocked(lambda request: said(*answers[len(psp.requests) - 1]))
    lookups = [await cancelling(psp).cancel(asked(), lease_ends=lease()) for _ in answers]
    assert [look for look, _ in lookups] == [Absent(), Succeeded("p", "COMPLETED"), CouldNotAsk()]
    assert [seen.http_status for _, seen in lookups] == [200, 409, 503]
    assert all(seen.started and seen.elapsed is not None for _, seen in lookups)
    assert (psp.requests[0].method, psp.requests[0].url.path) == ("POST", "/v2/payments/cancel")
    assert psp.requests[0].content == f'{{"idempotency_key":"{KEY}"}}'.encode()


async def test_a_cancel_counts_as_a_write_does(mocked: Any) -> None:
    psp = mocked(lambda request: said(401, {"errors": [{"code": "UNAUTHORIZED"}]}))
    lane = cancelling(psp)
    for number in range(5):
        look, _ = await lane.cancel(asked(provider_key=f"key-{number}"), lease_ends=lease())
        assert look == CouldNotAsk()
    assert lane.room() == 0, "five rows refused for our credentials open the breaker"
    look, seen = await lane.cancel(asked(), lease_ends=lease())
    assert isinstance(look, CouldNotAsk) and look.retry_after is not None
    assert seen.note == "the breaker is open"
    assert len(psp.requests) == 5


async def test_a_cancel_that_was_lost_or_never_sent_says_nothing(mocked: Any) -> None:
    psp = mocked(lambda request: spoilt("closed"))
    lane = cancelling(psp)
    look, seen = await lane.cancel(asked(), lease_ends=lease())
    assert (look, seen.started) == (CouldNotAsk(), True)
    look, seen = await lane.cancel(asked(), lease_ends=clock.boottime())
    assert (look, seen.started) == (CouldNotAsk(), False)
    look, seen = await opened(provider(STRIPE, psp.origin)).cancel(asked(), lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "this provider cannot cancel by key")
    assert len(psp.requests) == 1


BANK = Path(__file__).with_name("lane_questions_bank.toml").read_text()


@pytest.mark.wire
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

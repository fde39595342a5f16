"""A known key keeps its answer, byte for byte, whatever the settings of the API ask of requests now (P3)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fix_api import PAY, Client, client
from fix_spine import Spine
from fix_waiting import until

from idem.outbox.api import reading
from idem.outbox.config.http_settings import MOST_VALUES, ApiSettings, TenantLimitSettings
from idem.outbox.tenants.limits import TenantCounter
from idem.outbox.values.canonical import MAX_BYTES

BODY = json.dumps({"amount": 100, "note": "n" * 200_000, "more": [1] * 20_000}).encode()
JSON = {"Content-Type": "application/json"}
LOOSE = ApiSettings(port=0, max_body=MAX_BYTES, max_values=MOST_VALUES)

TIGHTER: dict[str, tuple[dict[str, Any], int, str]] = {
    "max_body": ({"max_body": 1000}, 413, "body_too_large"),
    "max_values": ({"max_values": 100}, 400, "body_invalid"),
    "strict_keys": ({"strict_keys": True}, 400, "key_invalid"),
    "min_key_length": ({"min_key_length": 16}, 400, "key_invalid"),
    "limits": ({"limits": TenantLimitSettings(new_keys=0.001, new_key_burst=1)}, 429, "too_many_keys"),
    "tenants": ({"tenants": {"t": TenantLimitSettings(new_keys=0.001, new_key_burst=1)}}, 429, "too_many_keys"),
}
"""Each setting that refuses requests, at its tightest, and what a new key is told."""

HARMLESS = {
    "host", "port", "pool", "timeout", "wait_cap", "token_cache", "metrics", "openapi", "drain",
    "profile",  # the status of a key that was used for other content
}  # fmt: skip
"""Settings that refuse no request for what it says."""


def test_every_setting_is_tried_or_known_to_be_harmless() -> None:
    assert {*TIGHTER} | HARMLESS == {*ApiSettings.model_fields}


@pytest.fixture
async def before(spine: Spine) -> bytes:
    """The answer to a large request with a short, bare key, which the settings of then allowed."""
    async with client(spine, settings=LOOSE) as api:
        assert (await api.ask("k1", content=BODY, headers=JSON)).status_code == 202
        await spine.work()
        answer = await api.ask("k1", content=BODY, headers=JSON)
        assert answer.status_code == 201
        return answer.content


async def chunks() -> AsyncIterator[bytes]:
    for begin in range(0, len(BODY), 10_000):
        yield BODY[begin : begin + 10_000]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", TIGHTER)
async def test_a_setting_that_became_tighter(spine: Spine, before: bytes, name: str, chunked: bool) -> None:
    changes, status, code = TIGHTER[name]
    settings = ApiSettings(port=0, **{"max_body": MAX_BYTES, "max_values": MOST_VALUES, **changes})

    async def ask(api: Client, key: str, body: bytes = BODY) -> httpx.Response:
        return await api.ask(key, content=chunks() if chunked and body is BODY else body, headers=JSON)

    async with client(spine, settings=settings) as api:
        for _ in range(2):
            again = await ask(api, "k1")
            assert (again.status_code, again.content) == (201, before), again.text
            assert again.headers["idempotent-replayed"] == "true"
        other = await ask(api, "k1", BODY.replace(b"100", b"101", 1))
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        new = [await ask(api, key) for key in ("k2", "k3")][-1]
        assert (new.status_code, new.json()["code"]) == (status, code)
    async with client(spine, "u", settings=settings) as stranger:
        theirs = [await ask(stranger, key) for key in ("k4", "k1")][-1]
        assert theirs.status_code == (202 if name == "tenants" else status), "the key of another tenant is new here"
    assert spine.effects() == 1


async def test_all_of_them_at_once_and_a_media_type_of_another(spine: Spine, before: bytes) -> None:
    tightest = ApiSettings(port=0, max_body=10, max_values=1, strict_keys=True, min_key_length=255)
    async with client(spine, settings=tightest) as api:
        again = await api.ask("k1", content=BODY, headers={"Content-Type": "text/plain"})
        assert (again.status_code, again.content) == (201, before)
        coded = {**JSON, "Content-Encoding": "gzip"}
        for key, content, headers in (("k2", BODY, {"Content-Type": "text/plain"}), ("k1", b"\x1f\x8b coded", coded)):
            assert await api.told(key, content=content, headers=headers) == (415, "unsupported_media_type")
        assert (await api.ask("k1", content=b"{", headers=JSON)).json()["code"] == "key_invalid"
        more = await api.ask("k1", content=b" " * MAX_BYTES + BODY, headers=JSON)
        assert (more.status_code, more.json()["detail"]) == (413, "At most 10 bytes are allowed.")


async def test_a_key_at_rest_goes_back_to_work(spine: Spine) -> None:
    """What was allowed then is sent as it was frozen then."""
    async with client(spine, settings=LOOSE) as api:
        assert (await api.ask("k1", content=BODY, headers=JSON)).status_code == 202
    await spine.rest()
    assert (await spine.one("SELECT status FROM idem.outbox"))["status"] == "held"
    async with client(spine, settings=ApiSettings(port=0, max_body=10)) as api:
        assert (await api.ask("k1", content=BODY, headers=JSON)).status_code == 202
    assert (await spine.one("SELECT status FROM idem.outbox"))["status"] == "pending"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were kept of each body that was read."""
    kept: list[int] = []
    body = reading.body

    async def spying(*given: Any) -> bytes:
        kept.append(0)
        found = await body(*given)
        kept[-1] = len(found)
        return found

    monkeypatch.setattr(reading, "body", spying)
    return kept


async def test_nothing_is_read_before_the_token_or_of_a_new_key(spine: Spine, before: bytes, read: list[int]) -> None:
    settings = ApiSettings(port=0, max_body=1000, strict_keys=True)
    async with client(spine, settings=settings) as api:
        nobody = await api.ask("k1", content=BODY, headers={**JSON, "Authorization": "Bearer wrong"})
        assert (nobody.status_code, read) == (401, [])
        assert ((await api.ask("k2", content=BODY, headers=JSON)).status_code, read) == (400, [])
        assert ((await api.ask('"k2"', content=BODY, headers=JSON)).status_code, read) == (413, [0])
        assert ((await api.ask("k1", content=BODY, headers=JSON)).status_code, read) == (201, [0, len(BODY)])
        no_such = await api.ask("k1", content=BODY, headers=JSON, path="/v1/intents/pay.gone")
        assert (no_such.status_code, len(read)) == (404, 2)


async def test_large_bodies_of_known_keys_are_held_one_at_a_time_for_each_tenant(spine: Spine, before: bytes) -> None:
    """A tenant that sends the beginning of one, and no more, holds up its own."""
    settings = ApiSettings(port=0, max_body=1000)
    async with client(spine, settings=settings) as api:
        parts = urlsplit(api.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = (
            f"POST {PAY} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\nIdempotency-Key: k1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        )
        writer.write(head.encode() + BODY[:50_000])
        await writer.drain()
        await _holding(api, 1)
        second = asyncio.create_task(api.ask("k1", content=BODY, headers=JSON))
        await _holding(api, 2)
        for _ in range(5):
            assert (await api.ask("k2", content=b'{"amount":1}', headers=JSON)).status_code in (202, 409)
        assert not second.done()
        writer.write(BODY[50_000:])
        await writer.drain()
        assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 201")
        assert (await asyncio.wait_for(second, 30)).content == before
        writer.close()
        await _holding(api, 0)


async def _holding(api: Client, number: int) -> None:
    """Wait until so many requests want to keep a body beyond the limit."""
    turns = api.api._service._asking._large._waiting
    await until(lambda: sum(turn.wanted for turn in turns.values()) == number, seconds=30)


async def test_a_refused_request_is_counted_once(spine: Spine, before: bytes) -> None:
    settings = ApiSettings(port=0, max_body=1000, max_values=100, min_key_length=2)
    async with client(spine, settings=settings) as api:
        counts = api.api._limits._counts
        counts.clear()
        for key, body, what in (
            (None, b"{}", TenantCounter.KEY_MISSING),
            ("x", b"{}", TenantCounter.KEY_INVALID),
            ("k2", b"{", TenantCounter.BODY_INVALID),
            ("k1", BODY, TenantCounter.REPLAYED),
            ("k1", b'{"amount":7}', TenantCounter.MISMATCH),
        ):
            await api.ask(key, content=body, headers=JSON)
            found = counts.pop("t")
            del found[TenantCounter.REQUESTS]
            assert found == {what: 1}, key

"""A body that costs is read in a thread, one at a time for each tenant; what would take long there is refused."""

import asyncio
import gc
import json
import threading
from collections import Counter
from typing import Any

import psycopg
import pytest
from fix_api import Client, client
from fix_spine import Spine

from idem.outbox.api import reading
from idem.outbox.api.large_bodies import LIGHT, Heavy
from idem.outbox.config.http_settings import MOST_VALUES, ApiSettings
from idem.outbox.values import card_data
from idem.outbox.values.canonical import MAX_BYTES

WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def empty_lists() -> int:
    """Empty lists that live in this process, other tests' too."""
    gc.collect()
    return sum(type(each) is list and not each for each in gc.get_objects())


async def test_heavy_bodies_of_one_tenant_are_read_one_at_a_time() -> None:
    heavy, running, most = Heavy(), Counter[str](), Counter[str]()

    def work(tenant: str) -> int:
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
        running[tenant] -= 1
        return threading.get_ident()

    threads = await asyncio.gather(*(heavy.run(t, LIGHT + 1, lambda t=t: work(t)) for t in "aabab" * 20))  # type: ignore[misc]
    assert set(most.values()) == {1} and threading.get_ident() not in threads
    assert await heavy.run("a", LIGHT, lambda: work("a")) == threading.get_ident()
    assert not heavy._turns


async def test_a_tenant_that_sends_many_waits_behind_itself_alone() -> None:
    heavy, order = Heavy(), []
    hold = threading.Event()

    def slow() -> None:
        hold.wait(20)
        order.append("many")

    many = [asyncio.create_task(heavy.run("many", LIGHT + 1, slow)) for _ in range(9)]
    await asyncio.sleep(0.1)
    one = asyncio.create_task(heavy.run("one", LIGHT + 1, lambda: order.append("one")))
    await asyncio.sleep(0.1)
    hold.set()
    await asyncio.gather(one, *many)
    assert order.index("one") <= 1


async def test_an_error_is_told_and_the_next_is_read() -> None:
    heavy = Heavy()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await heavy.run("a", LIGHT + 1, fails)
    assert await heavy.run("a", LIGHT + 1, lambda: 1) == 1


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which bodies were parsed."""
    seen: list[int] = []
    real = reading.params

    def params(*given: Any) -> Any:
        seen.append(threading.get_ident())
        return real(*given)

    monkeypatch.setattr(reading, "params", params)
    return seen


def sized(size: int) -> bytes:
    """A body of about so many bytes that the operation takes."""
    return json.dumps({"amount": 1, "note": "n" * size}).encode()


async def test_the_api_reads_a_large_body_beside_its_loop(spine: Spine, threads: list[int]) -> None:
    """Of an operation of idem.toml; one in Python has a thread of its own for each."""
    spine.know("pay.file", templated=True)
    json_type, path = {"Content-Type": "application/json"}, "/v1/intents/pay.file"
    async with client(spine) as api:
        small = await api.ask("small", path=path, content=sized(10), headers=json_type)
        large = await api.ask("large", path=path, content=sized(30_000), headers=json_type)
    assert {small.status_code, large.status_code} <= {202, 422}
    assert threads[0] == threading.get_ident() != threads[1]


async def test_what_is_too_large_and_what_has_too_many_values(spine: Spine) -> None:
    async with client(spine, settings=ApiSettings(port=0, max_values=50)) as one:
        json_type = {"Content-Type": "application/json"}
        assert (await one.ask("k", content=sized(70_000), headers=json_type)).status_code == 413
        many = await one.ask("k", content=b"[" + b"1," * 60 + b"1]", headers=json_type)
        assert (many.status_code, many.json()["code"]) == (400, "body_invalid")
        assert "more than 50 values" in many.text


@pytest.mark.parametrize("begin", ['"amount":1,', ""])
async def test_nothing_keeps_what_was_parsed_while_the_database_is_waited_for(spine: Spine, begin: str) -> None:
    """Many bodies that wait would make each pass of the garbage collector a long one: taken ones and refused ones."""
    lists, bodies = 4_000, 6  # so many connections of the pool one tenant may have
    body = b"{%s%s" % (begin.encode(), b'"more":[' + b",".join([b"[]"] * lists) + b"]}")
    async with client(spine, settings=ApiSettings(port=0, max_body=100_000, timeout=30)) as api:
        assert (await api.ask("warm")).status_code == 202
        before = empty_lists()
        async with await psycopg.AsyncConnection.connect(spine.url) as locking:
            await locking.execute("LOCK TABLE idem.idempotency_keys IN ACCESS EXCLUSIVE MODE")
            json_type = {"Content-Type": "application/json"}
            asked = [asyncio.create_task(api.ask(f"k{n}", content=body, headers=json_type)) for n in range(bodies)]
            async with await psycopg.AsyncConnection.connect(spine.url, autocommit=True) as looking:
                for _ in range(500):
                    row = await (await looking.execute(WAITING)).fetchone()
                    if row == (bodies,):
                        break
                    await asyncio.sleep(0.02)
            assert row == (bodies,)
            alive = empty_lists() - before
            await locking.rollback()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {202 if begin else 422}
    assert alive < lists


async def test_a_large_retry_that_is_refused_now_is_compared_beside_the_loop(api: Client, threads: list[int]) -> None:
    """The key is known, with another request: it is parsed once to be refused, once to be compared."""
    assert (await api.ask("k")).status_code == 202
    body = json.dumps({"note": "n" * 30_000}).encode()
    answer = await api.ask("k", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")
    assert len(threads) == 3 and threading.get_ident() not in threads[1:]


def test_the_limits_of_a_body_have_limits() -> None:
    settings = ApiSettings()
    assert (settings.max_body, settings.max_values) == (65_536, 10_000)
    for name, most in (("max_body", MAX_BYTES), ("max_values", MOST_VALUES)):
        ApiSettings.model_validate({name: most})
        with pytest.raises(ValueError, match="less than or equal"):
            ApiSettings.model_validate({name: most + 1})


async def test_an_application_reads_a_large_body_beside_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.requests import Request

    from idem import Idem
    from idem.application import fastapi
    from idem.outbox.values import canonical

    seen: list[int] = []
    real = canonical.parse

    def parse(raw: bytes, **more: Any) -> Any:
        seen.append(threading.get_ident())
        return real(raw, **more)

    monkeypatch.setattr(canonical, "parse", parse)
    order = Idem().operation("orders.create")

    async def asked(body: bytes) -> Any:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [(b"idempotency-key", b"k"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b"", "headers": headers}
        return await fastapi.read(order, Request(scope, receive), "t")

    small, large = await asked(sized(10)), await asked(sized(300_000))
    assert small.fingerprint.startswith("v1:") and large.fingerprint.startswith("v1:")
    assert seen[0] == threading.get_ident() != seen[1]


def test_what_is_wrong_with_a_body_is_told_in_few_words() -> None:
    """An answer never grows with the mistakes of a request."""
    assert len(card_data.find(["4444 4444 4444 4448"] * 1000)) == card_data.MOST

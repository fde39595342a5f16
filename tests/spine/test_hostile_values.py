"""Hostile values at every border: what a client sends, what a provider answers, what a template would send."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fix_accept import Acceptor
from fix_server import serving
from fix_spine import Spine, catalogue
from fix_sql import engine_of
from sqlalchemy import text

from idem.errors import BodyInvalid, ConfigError, KeyInvalid, Unrenderable
from idem.outbox.calls import request_head
from idem.outbox.domain.contract import ProviderRequest

REFERENCES: list[Any] = [
    "a\u0000b", "\ud800", "x" * 100_000, "", " ", "\n", "\u202e", "💸", 2**70, -1, 1.5, True, None, [], {}, ["p"],
    "'; DROP TABLE idem.outbox; --", "../../x", "%00", "{idem.key}", "\x7f", "a" * 255,
]  # fmt: skip
BODIES = [
    *(json.dumps({"id": r, "status": "succeeded", "amount": 1}).encode() for r in REFERENCES),
    b"", b"null", b"[]", b"0", b'"succeeded"', b"{", b"\xff\xfe", b"\x00", b"[" * 100_000, b'{"a":' * 50_000,
    b'{"id":"p","status":"succeeded","status":"declined"}',
    b'{"id":"p","status":"succeeded","amount":' + b"9" * 5000 + b"}",
    b'{"id":"p","status":"succeeded","amount":1e999999}',
    b'{"id":"p","status":"succeeded","amount":NaN}',
    b'{"id":"p","status":"\\ud83d","amount":1}',
    json.dumps({"id": "p", "status": "succeeded", "amount": {"x": ["\u0000" * 5000] * 50}}).encode(),
    json.dumps({"id": "p", "status": "declined", "error": {"code": "\u0000", "message": "\ud800"}}).encode(),
    json.dumps({"error": {"code": "x" * 10_000, "message": "\u0000"}}).encode(),
]  # fmt: skip
STATUSES = (200, 201, 202, 204, 299, 301, 400, 402, 404, 409, 422, 429, 499, 500, 503, 599, 999)
HEADERS = (
    b"retry-after: -1\r\n", b"retry-after: " + b"9" * 400 + b"\r\n", b"retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\n",
    b"content-encoding: gzip\r\n", b"x-nul: a\x7fb\r\n", b"content-encoding: br\r\n", b"",
)  # fmt: skip


@contextlib.asynccontextmanager
async def answering(answers: list[bytes]) -> AsyncIterator[str]:
    """A provider that answers whatever it is asked with the next of these bytes, around and around."""
    following = itertools.cycle(answers)
    async with serving(lambda _: next(following)) as url:
        yield url


def response(n: int, body: bytes) -> bytes:
    status, header = STATUSES[n % len(STATUSES)], HEADERS[n % len(HEADERS)]
    return b"HTTP/1.1 %d X\r\n%scontent-length: %d\r\n\r\n%s" % (status, header, len(body), body)


@pytest.mark.parametrize("shift", range(3))
async def test_whatever_a_provider_answers_every_claim_ends_on_record(spine: Spine, shift: int) -> None:
    """No answer crashes a daemon, stops a batch or leaves a claim behind; what is final is stored and given again."""
    answers = [response(n * (shift + 1) + shift, body) for n, body in enumerate(BODIES)]
    answers += [response(0, body) for body in BODIES]
    async with answering(answers) as url:
        spine.catalogue = catalogue(url)
        spine.acceptor = Acceptor(spine.catalogue.operations, spine.catalogue.providers)
        for n in range(len(answers) // 2):
            spine.accepted(f"k{n}", operation="pay.keyed" if n % 2 else "pay.keyless")
        for _ in range(12):
            await spine.work()
            await spine.advance(70)
        assert await spine.all("SELECT FROM idem.outbox WHERE status = 'claimed'") == []
        for _ in range(4):
            await spine.reconcile(hasten=True)
            await spine.advance(400)
        assert await spine.all("SELECT FROM idem.outbox WHERE claim_token IS NOT NULL AND claimed_until > now()") == []
    ends = await spine.all(
        "SELECT o.attempt, (SELECT count(*) FROM idem.evidence e WHERE e.outbox_id = o.id"
        " AND e.kind IN ('report', 'replay', 'lookup')) AS ends FROM idem.outbox o"
    )
    assert [row for row in ends if row["ends"] < row["attempt"]] == []
    for row in await spine.all("SELECT * FROM idem.idempotency_keys WHERE state = 'completed'"):
        first = spine.accept(row["idempotency_key"], operation=row["operation"])
        assert first == spine.accept(row["idempotency_key"], operation=row["operation"])


@pytest.mark.parametrize(
    ("key", "amount", "error"),
    [
        ("k\x00", 1, KeyInvalid), ("k" * 256, 1, KeyInvalid), ("\ud800", 1, KeyInvalid), ("a b", 1, KeyInvalid),
        ("ключ", 1, KeyInvalid), ('"a', 1, KeyInvalid), ("", 1, KeyInvalid),
        ("k", "\x00", BodyInvalid), ("k", "\udfff", BodyInvalid), ("k", float("nan"), BodyInvalid),
        ("k", float("inf"), BodyInvalid), ("k", 2**53, BodyInvalid), ("k", b"x", BodyInvalid),
        ("k", {1: 2}, BodyInvalid), ("k", {"\x00": 1}, BodyInvalid),
    ],
)  # fmt: skip
async def test_what_cannot_be_held_is_refused_before_any_statement(
    spine: Spine, key: str, amount: Any, error: type[Exception]
) -> None:
    """The caller's own transaction goes on: their rows are not lost because of a client's bytes."""
    with engine_of(spine.url).begin() as connection:
        connection.execute(text("CREATE TABLE public.orders (id int)"))
        with pytest.raises(error):
            spine.acceptor.accept(connection, "t", "pay.keyed", key, {"amount": amount})
        connection.execute(text("INSERT INTO public.orders VALUES (1)"))
    assert len(await spine.all("SELECT FROM public.orders")) == 1
    assert await spine.all("SELECT FROM idem.intents") == []


@pytest.mark.parametrize(
    "headers",
    [
        {"accept-encoding": "gzip"}, {"proxy-connection": "close"}, {"keep-alive": "1"}, {"te": "x"},
        {"content-length": "0"}, {"host": "a"}, {"x": "a\r\nb: c"}, {"x": "é"}, {"x\r\n": "a"}, {"authorization": "x"},
    ],
)  # fmt: skip
async def test_what_could_never_be_sent_is_refused_at_accept(spine: Spine, headers: dict[str, str]) -> None:
    """Accepted, it would be a mistake of the configuration at each attempt, and stop the lane for everybody."""
    provider = spine.catalogue.providers["keyed"]
    request = ProviderRequest("POST", "/payments", {"amount": 1}, headers)
    with pytest.raises(Unrenderable):
        frozen = provider.freeze(request, "00000000-0000-0000-0000-000000000000")
        with pytest.raises(ConfigError):  # what shows that it could not have been sent
            request_head.head(provider.accounts["keyed"], frozen)

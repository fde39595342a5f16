"""Arbitrary bytes as key, token, path and body, over a raw socket: never a 500, never a half-written row."""

import asyncio
import json

import pytest
from fix_api import Client
from fix_spine import Spine
from hypothesis import given
from hypothesis import strategies as st

LINE = st.binary(max_size=300).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b""))
"""What fits into a header's line; what does not is in `test_bytes_that_break_the_message`."""
KEYS = st.one_of(LINE, st.text(min_size=1, max_size=270).map(lambda text: text.encode("utf-8", "surrogatepass")),
                 st.from_regex(rb'"?[!-~]{1,260}"?(;a=1|, b)?', fullmatch=True))  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.one_of(
    st.binary(max_size=2000),
    JSON.map(lambda value: json.dumps(value, ensure_ascii=True).encode()),
    JSON.map(lambda value: json.dumps({"amount": value}, ensure_ascii=False).encode("utf-8", "replace")),
    st.sampled_from([b"[" * 100_000, b'{"a":' * 5000, b"1" * 5000, b"1e999999999", b'"\\ud800"', b"\xff\xfe{}", b""]),
)

WHOLE = """
SELECT (SELECT count(*) FROM idem.intents) AS intents, (SELECT count(*) FROM idem.outbox) AS rows,
       (SELECT count(*) FROM idem.requests) AS requests, (SELECT count(*) FROM idem.idempotency_keys) AS keys,
       (SELECT count(*) FROM idem.evidence WHERE kind = 'accepted') AS evidence
"""


async def sent(api: Client, message: bytes) -> int | None:
    """The status of the answer to these bytes; None where the server just closed the line."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(message)
        line = await asyncio.wait_for(reader.readline(), 20)
    except ConnectionError:
        return None
    finally:
        writer.close()
    return int(line.split()[1]) if line else None


def request(token: bytes, key: bytes, body: bytes, path: bytes = b"/v1/intents/pay.keyed") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\nIdempotency-Key: %b\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (path, token, key, len(body), body)
    )


@pytest.mark.fuzz
@pytest.mark.parametrize("part", ["key", "token", "body", "path", "all"])
async def test_arbitrary_bytes_are_refused_or_taken_whole(api: Client, spine: Spine, part: str) -> None:
    loop = asyncio.get_running_loop()
    good = f"Bearer {api.token}".encode()

    @given(key=KEYS, token=LINE, body=BODIES, path=LINE)
    def feed(key: bytes, token: bytes, body: bytes, path: bytes) -> None:
        message = request(
            token if part in ("token", "all") else good,
            key if part in ("key", "all") else b"k1",
            body if part in ("body", "all") else b'{"amount": 1}',
            b"/v1/intents/" + path if part in ("path", "all") else b"/v1/intents/pay.keyed",
        )
        status = asyncio.run_coroutine_threadsafe(sent(api, message), loop).result(40)
        assert status is None or 200 <= status < 500, (status, message)

    await asyncio.to_thread(feed)
    assert len(set((await spine.one(WHOLE)).values())) == 1


@pytest.mark.fuzz
async def test_bytes_that_break_the_message(api: Client, spine: Spine) -> None:
    """Whatever is no HTTP: an answer of 4xx or a closed line, and the next request is answered."""
    loop = asyncio.get_running_loop()

    @given(st.binary(max_size=500), st.booleans())
    def feed(junk: bytes, inside: bool) -> None:
        message = request(f"Bearer {api.token}".encode(), junk, b"{}") if inside else junk + b"\r\n\r\n"
        status = asyncio.run_coroutine_threadsafe(sent(api, message), loop).result(40)
        assert status is None or status < 500, (status, message)

    await asyncio.to_thread(feed)
    assert (await api.ask(key="afterwards")).status_code == 202
    assert len(set((await spine.one(WHOLE)).values())) == 1


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [b"/v1/intents/x%00", b"/v1/intents/%00", b"/v1%2fintents/pay.keyed", b"/v1%2Fintents%2Fx", b"/webhooks/%00"],
)
async def test_a_path_that_names_nothing_is_not_found(api: Client, method: str, path: bytes) -> None:
    """A character that no name has, or an encoded slash, which a proxy's rules about paths do not see."""
    body = b'{"amount": 1}'
    message = request(b"Bearer " + api.token.encode(), b"k1", body, path).replace(b"POST", method.encode(), 1)
    assert await sent(api, message) in (404, 405)

"""What the endpoint answers over real HTTP; never a 500, and nothing is written for what is refused."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fix_desk import Desk
from fix_settings import with_constants
from fix_webhooks import FIRST, KEYS, OTHERS, SECOND, Hooks, event, hooking, secret, serving, signed, with_events
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.config.http_settings import EndpointSettings

BODY = json.dumps(event(None)).encode()


async def rows(hooks: Hooks) -> int:
    found = await hooks.spine.one("SELECT count(*)::integer AS n FROM idem.webhook_events")
    return int(found["n"])


def problem(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code
    assert answer.json()["status"] == status


async def test_what_is_not_signed_is_401_and_nothing_is_written(hooks: Hooks) -> None:
    good = signed(BODY, "evt_1")
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        problem(await hooks.post(BODY, {k: v for k, v in good.items() if k != name}), 401, "webhook_unverified")
        problem(await hooks.post(BODY, [*good.items(), (name, good[name])]), 401, "webhook_unverified")
    problem(await hooks.post(BODY + b" ", good), 401, "webhook_unverified")
    problem(await hooks.send(event(None), key=secret("nobody's")), 401, "webhook_unverified")
    assert await rows(hooks) == 0


@pytest.mark.parametrize("stamp", ["123abc", "1e9", "-1", "1700000000000", "1" * 20, "1700000000.5"])
async def test_ib_108_a_time_stamp_of_another_form_is_401(hooks: Hooks, stamp: str) -> None:
    problem(await hooks.post(BODY, signed(BODY, "evt_1") | {"webhook-timestamp": stamp}), 401, "webhook_unverified")


async def test_ib_107_from_the_future_and_again_later_has_one_effect(hooks: Hooks) -> None:
    """The symmetric tolerance lets a delivery in twice as long; by its id it is known."""
    headers = signed(BODY, "evt_1", at=time.time() + 299)
    assert (await hooks.post(BODY, headers)).json()["fate"] == "unmatched"
    assert (await hooks.post(BODY, headers)).json()["fate"] == "duplicate"
    assert await rows(hooks) == 1


async def test_ib_106_the_age_is_that_of_the_receipt(hooks: Hooks) -> None:
    """A delivery that waits here, because its body is slow, does not grow too old meanwhile."""
    headers = signed(BODY, "evt_1", at=time.time() - 299)

    async def slow() -> Any:
        yield BODY[:10]
        await asyncio.sleep(2)
        yield BODY[10:]

    answer = await hooks.http.post("/webhooks/keyed", content=slow(), headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "text/plain"}, "unsupported_media_type"),
        ({"content-type": ""}, "unsupported_media_type"),
        ({"content-type": "application/x-www-form-urlencoded", "content-encoding": "gzip"}, "unsupported_media_type"),
        ({"content-encoding": "gzip"}, "unsupported_media_type"),
    ],
)
async def test_another_media_type_is_415(hooks: Hooks, headers: dict[str, str], code: str) -> None:
    problem(await hooks.post(BODY, signed(BODY, "evt_1") | headers), 415, code)


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "application/cloudevents+json", "Application/JSON"]
)
async def test_every_kind_of_json_is_taken(hooks: Hooks, kind: str) -> None:
    assert (await hooks.post(BODY, signed(BODY, "evt_1") | {"content-type": kind})).status_code == 200


FORM = {"content-type": "application/x-www-form-urlencoded"}


async def test_a_form_with_the_json_in_its_payload_is_the_same_event(hooks: Hooks) -> None:
    """GitHub's default. The signature is over the form; what is kept is the JSON, which is read again."""
    text = json.dumps(event(None, note="a & b = ü + %"))
    body = urlencode({"payload": text}).encode()
    assert (await hooks.post(body, signed(body, "evt_form") | FORM)).json()["fate"] == "unmatched"
    assert bytes(await hooks.spine.value("SELECT body FROM idem.webhook_bodies")) == text.encode()
    problem(await hooks.post(body, signed(BODY, "evt_form") | FORM), 401, "webhook_unverified")


@pytest.mark.parametrize("form", [b"", b"payload", b"a=b", b"payload=%7B%7D&payload=%7B%7D", b"payload=%ff", b"&" * 99])
async def test_a_form_without_one_payload_is_400(hooks: Hooks, form: bytes) -> None:
    problem(await hooks.post(form, signed(form, "evt_1") | FORM), 400, "webhook_unreadable")


async def test_too_large_is_413_whether_it_says_so_or_not(desk: Desk) -> None:
    async with hooking(desk, EndpointSettings(max_body=2000)) as hooks:
        body = json.dumps(event(None, note="x" * 3000)).encode()
        problem(await hooks.post(body, signed(body, "evt_1")), 413, "body_too_large")

        pieces = b"".join(b"64\r\n" + body[start : start + 100] + b"\r\n" for start in range(0, 2500, 100))
        headers = signed(body, "evt_2") | {"transfer-encoding": "chunked"}
        assert b"413" in await first_line(hooks, headers, pieces + b"0\r\n\r\n")
        assert await rows(hooks) == 0


async def test_a_body_that_never_ends_is_answered_in_bounded_time(desk: Desk) -> None:
    async with hooking(desk, with_constants(EndpointSettings(), read_timeout=0.5)) as hooks:
        began = time.monotonic()
        assert b"400" in await first_line(hooks, signed(BODY, "evt_1") | {"content-length": "1000"}, BODY)
        assert time.monotonic() - began < 10


async def first_line(hooks: Hooks, headers: dict[str, str], sent: bytes) -> bytes:
    """What is answered to a request of which no more is sent than this."""
    address = httpx.URL(hooks.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = "".join(f"{name}: {value}\r\n" for name, value in ({"host": "h"} | headers).items())
    writer.write(f"POST /webhooks/keyed HTTP/1.1\r\n{head}\r\n".encode() + sent)
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return line


@pytest.mark.parametrize("body", [b"", b"{", b"nul", b'{"a": 01}', b"\xff\xfe", b"[" * 100_000])
async def test_signed_and_unreadable_is_400(hooks: Hooks, body: bytes) -> None:
    headers = signed(b"", "evt_1")
    text = b"evt_1." + headers["webhook-timestamp"].encode() + b"." + body
    headers["webhook-signature"] = "v1," + base64.b64encode(hmac.digest(KEYS["first"], text, hashlib.sha256)).decode()
    problem(await hooks.post(body, headers), 400, "webhook_unreadable")
    assert await rows(hooks) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"7",
        b"null",
        b'""',
        b'{"data": null}',
        b'{"type": ["x"]}',
        b'{"type": "\\u0000", "data": {"id": "\\ud800"}}',
        b'{"data": {"id": {}, "idempotency_key": [1]}}',
    ],
)
async def test_ib_117_genuine_and_of_no_use_is_2xx(hooks: Hooks, body: bytes) -> None:
    """A provider switches off an endpoint that refuses what it sends."""
    assert await hooks.fate(body) in ("unmatched", "ignored")


async def test_ib_117_an_unknown_type_is_stored_and_changes_nothing(hooks: Hooks) -> None:
    intent = await hooks.desk.unknown("k")
    content = event(await hooks.key(intent)) | {"type": "customer.created"}
    assert await hooks.fate(content) == "ignored"
    assert await hooks.desk.state(intent) == ("unknown", "unknown")
    kept = await hooks.kept()
    assert (kept["type"], kept["retry_at"]) == ("customer.created", None)


async def test_another_address_is_404(hooks: Hooks) -> None:
    for path in ("/webhooks/nobody", "/webhooks/keyed/nobody", "/webhooks", "/webhooks/keyed/", "/webhooks/keyed/a/b"):
        problem(await hooks.send(event(None), path=path), 404, "not_found")
    answer = await hooks.http.get("/webhooks/keyed")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


async def test_ib_102_without_a_secret_every_event_is_refused(hooks: Hooks) -> None:
    """Fail closed, with a status at which the provider comes again."""
    answer = await hooks.send(event(None), path="/webhooks/keyless")
    problem(answer, 503, "webhook_not_configured")
    assert int(answer.headers["retry-after"]) > 0
    problem(await hooks.send(event(None), path="/webhooks/keyless/keyless"), 503, "webhook_not_configured")


async def test_hazard_75_the_accounts_own_address_takes_only_its_secrets(hooks: Hooks) -> None:
    assert await hooks.fate(event(None), "evt_1", path="/webhooks/keyed", key=FIRST) == "unmatched"
    assert await hooks.fate(event(None), "evt_2", path="/webhooks/keyed", key=OTHERS) == "unmatched"
    assert await hooks.fate(event(None), "evt_3", path="/webhooks/keyed/other", key=OTHERS) == "unmatched"
    assert await hooks.fate(event(None), "evt_4", path="/webhooks/keyed/keyed", key=SECOND) == "unmatched"
    problem(await hooks.send(event(None), "evt_5", path="/webhooks/keyed/other", key=FIRST), 401, "webhook_unverified")
    problem(await hooks.send(event(None), "evt_6", path="/webhooks/keyed/keyed", key=OTHERS), 401, "webhook_unverified")
    kept = await hooks.spine.all("SELECT event_id, account FROM idem.webhook_events ORDER BY event_id")
    assert [row["account"] for row in kept] == ["keyed", "other", "other", "keyed"]


async def test_hazard_18_an_id_of_two_accounts_is_two_events(hooks: Hooks) -> None:
    assert await hooks.fate(event(None), "evt_1", key=FIRST) == "unmatched"
    assert await hooks.fate(event(None), "evt_1", key=OTHERS) == "unmatched"
    assert await hooks.fate(event(None), "evt_1", key=OTHERS) == "duplicate"


async def test_ib_097_a_member_twice_does_not_make_the_event_unreadable(hooks: Hooks) -> None:
    """What is said beside it counts; what is said twice is as good as unsaid."""
    first, second = await hooks.desk.unknown("k1"), await hooks.desk.unknown("k2")
    text = (
        '{"type":"payment.succeeded", "x":1,"x" :2, '
        '"data":{"id":"pay_1","status":"succ\\u0065eded","idempotency_key":"%s"}}'
    )
    assert await hooks.fate((text % await hooks.key(first)).encode(), "evt_1") == "applied"
    twice = text.replace('"status"', '"status":"succeeded","status"') % await hooks.key(second)
    assert await hooks.fate(twice.encode(), "evt_2") == "noted"
    assert (await hooks.desk.state(second))[0] == "unknown"


async def test_the_bytes_are_kept_and_credentials_are_not(hooks: Hooks) -> None:
    body = b'{ "type" :"payment.x" }'
    headers = signed(body, "evt_1") | {"authorization": "Bearer secret", "cookie": "a=b", "x-trace": "7"}
    assert (await hooks.post(body, headers)).status_code == 200
    kept = await hooks.spine.one("SELECT headers, body FROM idem.webhook_bodies")
    assert bytes(kept["body"]) == body
    assert kept["headers"]["x-trace"] == "7"
    assert not {"authorization", "cookie"} & set(kept["headers"])


async def test_a_database_that_is_away_is_503_in_bounded_time(desk: Desk) -> None:
    """Nothing listens at this address: the provider hears when to come again."""
    known = with_events(desk.spine.catalogue)
    nowhere = "postgresql://nobody@127.0.0.1:9/nothing"
    async with (
        serving(nowhere, known, EndpointSettings(timeout=1)) as url,
        httpx.AsyncClient(base_url=url, timeout=30, verify=False) as http,
    ):
        began = time.monotonic()
        answer = await http.post("/webhooks/keyed", content=BODY, headers=signed(BODY, "evt_1"))
        problem(answer, 503, "store_unavailable")
        assert time.monotonic() - began < 10
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        # What is not genuine hears so all the same.
        problem(await http.post("/webhooks/keyed", content=BODY, headers={"content-type": "application/json"}), 401,
                "webhook_unverified")  # fmt: skip


async def test_a_lock_that_nobody_lets_go_is_503_and_the_event_comes_again(desk: Desk) -> None:
    async with hooking(desk, EndpointSettings(timeout=1)) as hooks, hooks.spine.database.connection() as connection:
        async with connection.transaction():
            await connection.execute("LOCK TABLE idem.webhook_bodies IN EXCLUSIVE MODE")
            problem(await hooks.send(event(None)), 503, "store_unavailable")
        assert await hooks.fate(event(None)) == "unmatched"


@given(
    path=st.text(st.characters(codec="ascii", categories=("L", "N", "P")), max_size=20).filter(lambda p: "?" not in p),
    headers=st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "content-type"]),
        st.text(st.characters(codec="latin-1", exclude_categories=("Cc",)), max_size=40),
    ),
    body=st.binary(max_size=200),
    good=st.booleans(),
)
def test_nothing_that_is_sent_is_a_500(
    anywhere: str, path: str, headers: dict[str, str], body: bytes, good: bool
) -> None:
    sent = {"content-type": "application/json"} | headers
    raw = [(name.encode(), value.strip().encode("latin-1")) for name, value in sent.items()]
    address = "/webhooks/keyed" if good else f"/webhooks/{path.replace('/', '%2F')}"
    answer = httpx.post(anywhere + address, content=body, headers=raw)
    assert answer.status_code in (401, 404, 405, 413, 415, 503), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.fixture
def anywhere(hooks: Hooks) -> Any:
    """The endpoint in a thread of its own, for tests that are no coroutines."""
    import threading

    addresses: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def run() -> None:
        async with serving(hooks.spine.url, hooks.spine.catalogue) as url:
            addresses.append(url)
            ready.set()
            while not over.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(20)
    yield addresses[0]
    over.set()
    thread.join(30)

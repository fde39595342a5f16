"""What of a request is its wish: the fingerprint over HTTP and SQL, what may differ, what must not be stored."""

import re
from typing import Any

import pytest
from fix_api import Client, client
from fix_spine import Spine

from idem.decisions import InProgress, Replay
from idem.outbox.api import suspicious
from idem.outbox.config.http_settings import ApiSettings


async def test_hazard_70_the_same_wish_over_http_and_in_a_transaction_is_one(api: Client, spine: Spine) -> None:
    """One fingerprint: whichever came first, the other finds it, while it runs and afterwards."""
    made = await api.ask(key="http-first")
    again = spine.accept("http-first")
    assert isinstance(again, InProgress) and again.intent_id == api.intent(made)
    intent = spine.accepted("sql-first")
    answer = await api.ask(key="sql-first")
    assert (answer.status_code, api.intent(answer)) == (409, intent)
    await spine.work()
    assert (await api.ask(key="sql-first")).status_code == 201
    assert isinstance(spine.accept("http-first"), Replay)
    assert spine.effects() == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"amount":100}', 409),
        (b' {\n "amount" : 100.0 } ', 409),
        (b'{"amount":1e2}', 409),
        (b'{"amount":"100"}', 422),
        (b'{"amount":100,"note":null}', 422),
    ],
)
async def test_the_spelling_of_json_is_no_content(api: Client, body: bytes, status: int) -> None:
    assert (await api.ask(amount=100)).status_code == 202
    assert (await api.ask(content=body, headers={"Content-Type": "application/json"})).status_code == status


async def test_a_query_string_is_content(api: Client) -> None:
    assert (await api.ask()).status_code == 202
    assert (await api.ask(path="/v1/intents/pay.keyed?x=1")).json()["code"] == "key_reused"


async def test_members_can_be_left_out_of_the_fingerprint(spine: Spine) -> None:
    """A client's own clock may move between retries; the first request is the one that counts."""
    spine.know("pay.timed", fingerprint_without=("/client/time", "/absent/member"))
    async with client(spine) as api:
        first, later, other = [
            await api.ask(path="/v1/intents/pay.timed", json={"amount": 1, "client": {"time": time, "shop": shop}})
            for time, shop in ((1, "a"), (2, "a"), (3, "b"))
        ]
    assert (first.status_code, later.status_code, other.status_code) == (202, 409, 422)
    assert later.json()["intent"] == first.json()["intent"]
    assert (await spine.one("SELECT params FROM idem.intents"))["params"]["client"]["time"] == 1


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"amount": 1, "card": {"number": "4242 4242 4242 4242"}}, "/card/number"),
        ({"amount": 1, "card": {"number": 4242424242424242}}, "/card/number"),
        ({"amount": 1, "cards": [{"CVV": "123"}]}, "/cards/0/CVV"),
        ({"amount": 1, "card-number": "x"}, "/card-number"),
        ({"amount": 1, "security_code": 12}, "/security_code"),
    ],
)
async def test_hazard_38_card_data_is_refused_unstored(api: Client, spine: Spine, params: Any, pointer: str) -> None:
    """With the pointer to it and never with its value; an operation may allow it knowingly."""
    response = await api.ask(json=params)
    assert (response.status_code, response.json()["code"]) == (422, "params_invalid")
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    # An id of the answer may have four such digits by chance.
    assert not re.search("4242 4242|4242424242424242", response.text)
    assert await spine.all("SELECT FROM idem.intents") == []
    spine.know("pay.allowing", card_data="allow")
    async with client(spine) as other:
        assert (await other.ask(path="/v1/intents/pay.allowing", json=params)).status_code == 202


@pytest.mark.parametrize(
    "params",
    [
        {"amount": 1, "order": "4242424242424241"},
        {"amount": 1, "at": 1795840341598},
        {"amount": 1, "token": "tok_4242424242424242"},
        {"amount": 1, "cvv": None},
        {"amount": 4242},
    ],
)
async def test_what_is_no_card_data_passes(api: Client, params: dict[str, Any]) -> None:
    assert (await api.ask(json=params)).status_code == 202


async def test_a_key_that_looks_personal_is_counted_and_never_shown(api: Client, spine: Spine, capsys: Any) -> None:
    key = "ada.lovelace@example.org"
    assert suspicious.kind(key) == "email"
    assert (await api.ask(key=key)).status_code == 202
    metrics = (await api.http.get("/metrics")).text
    assert 'idem_keys_suspicious_total{kind="email"}' in metrics
    written = capsys.readouterr()
    assert "lovelace" not in metrics + written.out + written.err


async def test_a_least_length_of_keys(spine: Spine) -> None:
    async with client(spine, settings=ApiSettings(min_key_length=16)) as api:
        assert (await api.ask(key="x" * 15)).json()["code"] == "key_invalid"
        assert (await api.ask(key="x" * 16)).status_code == 202

"""What counts as the same request, what is refused before it is written, and sizes."""

import json
from typing import Any
from uuid import UUID

import pytest
from accept.shop import Shop, empty
from fix_sql import forced, query

from idem.decisions import Accepted, InProgress, Mismatch, Replay
from idem.errors import BodyInvalid, ConfigError, IdemError, KeyInvalid
from idem.outbox.values import canonical


@pytest.mark.parametrize(
    "again",
    [
        '{"amount": 100, "note": "é", "lines": [1, 2.5, {"a": null, "b": true}]}',
        '{"lines":[1,2.5,{"b":true,"a":null}],"note":"\\u00e9","amount":100}',
        ' {\n "note" : "é" , "amount" : 1e2 , "lines" : [ 1.0 , 2.50 , { "b" : true , "a" : null } ] } ',
    ],
)
def test_ib_125_the_same_json_in_another_spelling_is_the_same_request(shop: Shop, again: str) -> None:
    first = shop.once(params={"amount": 100, "note": "é", "lines": [1, 2.5, {"a": None, "b": True}]})
    assert isinstance(first, Accepted)
    assert isinstance(shop.once(params=canonical.parse(again.encode())), InProgress)
    shop.put(first.intent_id, "completed")
    assert isinstance(shop.once(params=canonical.parse(again.encode())), Replay)


@pytest.mark.parametrize(
    "other",
    [
        {"amount": 101}, {"amount": "100"}, {"amount": 100.5}, {"amount": 100, "note": None}, {"amount": [100]},
        {"Amount": 1, "amount": 100}, {"amount": 100, "": 1},
    ],
)  # fmt: skip
def test_ib_125_other_content_is_another_request(shop: Shop, other: dict[str, Any]) -> None:
    first = shop.accepted(params={"amount": 100})
    assert shop.once(params={"amount": 100} | other) == Mismatch(first.intent_id)


def test_text_is_compared_by_code_points(shop: Shop) -> None:
    """One é and e with an accent look alike and are two texts; nothing is normalised behind the client's back."""
    first = shop.accepted(params={"amount": 1, "note": "\u00e9"})
    assert shop.once(params={"amount": 1, "note": "e\u0301"}) == Mismatch(first.intent_id)


@pytest.mark.parametrize(
    "body",
    [
        '{"amount": 1e400}', '{"amount": -1e400}', '{"amount": 100000000.000000011}', '{"amount": 9007199254740993}',
        '{"amount": 1e99999999999999999999}', '{"amount": NaN}', '{"amount": Infinity}', '{"amount": 1, "amount": 2}',
        '{"amount": 1, "note": "\\u0000"}', '{"amount": 1, "note": "\\ud800"}', '{"amount": 1, "\\u0000": 1}',
    ],
)  # fmt: skip
def test_hazard_49_what_cannot_be_held_exactly_is_refused_and_writes_nothing(shop: Shop, body: str) -> None:
    with pytest.raises(BodyInvalid), shop.engine.begin() as connection:
        shop.accept(connection, params=canonical.parse(body.encode()))
    assert set(shop.counts().values()) == {0}


@pytest.mark.parametrize(
    "params",
    [{"amount": float("inf")}, {"amount": float("nan")}, {"amount": 2**53}, {"amount": 1, "n": "\0"},
     {"amount": 1, "n": "\udfff"}, {"amount": 1, 2: 3}, {"amount": 1, "n": {1}}, {"amount": 1, "n": b"x"}],
)  # fmt: skip
def test_hazard_49_nor_as_values_of_python(shop: Shop, params: dict[Any, Any]) -> None:
    """And the caller's transaction is as good as before."""
    with shop.open() as connection:
        with pytest.raises(BodyInvalid):
            shop.accept(connection, params=params)
        assert isinstance(shop.accept(connection), Accepted)


@pytest.mark.parametrize("key", ["", "   ", "\t", "k" * 256, "k" * 8000, "a b", 'a"b', "schlüssel", "a\x00b", '"a'])
def test_ib_119_121_a_bad_key_is_refused_and_writes_nothing(shop: Shop, key: str) -> None:
    with pytest.raises(KeyInvalid), shop.engine.begin() as connection:
        shop.accept(connection, key)
    assert set(shop.counts().values()) == {0}


@pytest.mark.parametrize(
    "key", ["k", "k" * 255, "!#$%&'()*+-./:<=>?@[]^_`{|}~", "8e03978e-40d5-43dd-bc93-6894a57f9324"]
)
def test_ib_119_124_a_good_key_is_stored_as_it_is(shop: Shop, key: str) -> None:
    assert isinstance(shop.once(key), Accepted)
    assert shop.rows("SELECT idempotency_key FROM idem.idempotency_keys") == [(key,)]
    assert isinstance(shop.once(f'"{key}"'), InProgress)  # IB-120: quoted and bare are one key


def test_an_unknown_operation_is_named(shop: Shop) -> None:
    with pytest.raises(ConfigError, match=r"operations\.pay\.other"):
        shop.once(operation="pay.other")


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_large_bodies_are_frozen_and_answers_replayed_byte_for_byte(shop: Shop, size: int) -> None:
    note = "é" * (size // 2)
    first = shop.once(params={"amount": 1, "note": note})
    assert isinstance(first, Accepted)
    ((stored,),) = shop.rows("SELECT params ->> 'note' FROM idem.intents")
    assert stored == note
    shop.put(first.intent_id, "completed")
    answer = bytes(range(256)) * (size // 256)
    forced(shop.url, "UPDATE idem.idempotency_keys SET response_body = %s", [answer])
    replay = shop.once(params={"note": note, "amount": 1})
    assert isinstance(replay, Replay) and replay.answer.body == answer


def test_hazard_59_the_same_wish_has_the_same_provider_key_after_lost_commits(shop: Shop) -> None:
    """The first accept is lost with all that it wrote; the client's retry meets the provider's own memory."""
    first = shop.accepted()
    key = shop.rows("SELECT provider_key, (SELECT provider_key FROM idem.requests) FROM idem.outbox")
    empty(shop.url)
    assert first.intent_id != shop.accepted().intent_id
    assert shop.rows("SELECT provider_key, (SELECT provider_key FROM idem.requests) FROM idem.outbox") == key
    assert key[0][0] == key[0][1]


def test_hazard_59_every_part_of_the_scope_changes_the_provider_key(shop: Shop) -> None:
    for options in ({}, {"tenant": "u"}, {"operation": "ship.keyed"}):
        for key in ("k", "k2"):
            assert isinstance(shop.once(key, **options), Accepted)
    keys: list[UUID] = [row[0] for row in shop.rows("SELECT provider_key FROM idem.outbox")]
    assert len(set(keys)) == 6


def test_hazard_59_another_installation_has_other_keys(shop: Shop) -> None:
    """Two environments of one program may share a provider's account: their keys never meet."""
    shop.once()
    before = shop.rows("SELECT provider_key FROM idem.outbox")
    ((secret,),) = shop.rows("SELECT secret FROM idem.installation")
    query(shop.url, "UPDATE idem.installation SET secret = sha256(secret)")
    try:
        other = Shop(shop.url, type(shop.acceptor)(shop.acceptor.operations, shop.acceptor.providers))
        empty(shop.url)
        other.once()
        assert shop.rows("SELECT provider_key FROM idem.outbox") != before
    finally:
        query(shop.url, "UPDATE idem.installation SET secret = %s", [secret])


def test_a_refusal_of_ours_is_one_of_our_errors(shop: Shop) -> None:
    for bad in ({"key": ""}, {"operation": "x"}, {"params": {"amount": float("nan")}}):
        with pytest.raises(IdemError) as caught:
            shop.once(**bad)  # type: ignore[arg-type]
        assert str(caught.value)


def test_the_frozen_bytes_are_those_of_the_accepted_params(shop: Shop) -> None:
    shop.once(amount=12345)
    ((body, headers, key),) = shop.rows("SELECT body, headers, provider_key FROM idem.requests")
    assert json.loads(body) == {"amount": 12345, "currency": "eur"}
    assert headers["idempotency-key"] == str(key)
    assert "authorization" not in {name.lower() for name in headers}

"""A completed key answers with the same bytes in every framework, whatever became of its operation's configuration."""

import asyncio
import inspect
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from adopt.faces import FACES, PARAMS, PATH
from adopt.shop import CONFIG, Charge, account
from adopt.working import rest, states, work
from pydantic import BaseModel

from idem import Answer, Idem, Request
from idem.errors import Unserved
from idem.testing.bank import Bank

BODY = json.dumps(PARAMS).encode()
WITHOUT = 'environment = "test"\n'
PROFILE = """
[api]
profile = "stripe"
strict_keys = true
min_key_length = 64
max_body = 1
max_values = 1
limits = { requests = 0.001, request_burst = 1, new_keys = 0.001, new_key_burst = 1, active_keys = 1 }
"""
MOVED = CONFIG.replace("ledger", "other")
TO_LEDGER: dict[str, Any] = {
    "provider": "ledger",
    "request": lambda p: Request("POST", "/payments", json={"amount": p.amount, "currency": "eur"}),
}


class Stricter(BaseModel):
    amount: int
    currency: str
    note: str


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "the profile and every limit of the API": (CONFIG + PROFILE, TO_LEDGER),
    "a param became required": (CONFIG, {**TO_LEDGER, "model": Stricter}),
    "a member is left out": (CONFIG, {**TO_LEDGER, "fingerprint_without": ["/currency"]}),
    "its keys live for another time": (CONFIG, {**TO_LEDGER, "key_ttl": "25h", "after_expiry": "refuse"}),
    "its answer has a version": (CONFIG, {**TO_LEDGER, "answer_version": 7}),
    "no request can be made": (CONFIG, {**TO_LEDGER, "request": lambda p: 1 / 0}),
    "its provider is another one": (MOVED, {**TO_LEDGER, "provider": "other"}),
    "its provider is removed": (WITHOUT, {"model": Charge}),
    "the operation is removed, and another has its name": (WITHOUT, {}),
    "its caller makes the call": (WITHOUT, {"model": Charge, "inline": True}),
    "its caller makes the call, and params are refused": (WITHOUT, {"model": Stricter, "inline": True}),
    "a worker makes the call": (CONFIG, {**TO_LEDGER, "model": Charge}),
}


def define(path: Path, config: str, said: dict[str, Any]) -> tuple[Idem, Any]:
    path.write_text(config)
    idem = Idem(path, tenant=account)
    settings = {"key_ttl": "72h", "answer": lambda o: Answer(201, {"payment": o.reference}), **said}
    model = settings.pop("model", Charge if said.get("provider") else None)
    return idem, idem.operation("payments.create", model, **settings)


async def told(face: Callable[..., Any], *given: Any) -> Answer:
    return await (face(*given) if inspect.iscoroutinefunction(face) else asyncio.to_thread(face, *given))


@pytest.mark.parametrize("name", FACES)
async def test_a_key_keeps_its_answer(shop_url: str, tmp_path: Path, bank: Bank, monkeypatch: Any, name: str) -> None:
    monkeypatch.setenv("IDEM_DATABASE_URL", shop_url)
    face, path = FACES[name], tmp_path / "idem.toml"
    first: dict[str, Any] = {"inline": True, "model": Charge} if name == "inline" else {**TO_LEDGER, "model": Charge}
    idem, pay = define(path, CONFIG, first)
    bodies = [BODY] if name == "accept" else [BODY, b"no JSON \xff"]
    with idem.pointed_at("ledger", bank.url):
        for number, body in enumerate(bodies):
            assert (await told(face, pay, shop_url, f"k{number}", body)).status in (201, 202)
        await work(idem, shop_url)
        kept = [await told(face, pay, shop_url, f"k{number}", body) for number, body in enumerate(bodies)]
    assert [each.status for each in kept] == [201] * len(bodies)
    for what, (config, said) in CHANGES.items():
        if what == "its provider is another one" and name == "inline":
            continue
        idem, pay = define(path, config, said)
        with closing(idem):
            for number, body in enumerate(bodies):
                again = await told(face, pay, shop_url, f"k{number}", body)
                assert (again.status, again.body) == (201, kept[number].body), (what, body, again)
                assert {each.lower() for each in again.headers} >= {"idempotent-replayed"}, what
                other = await told(face, pay, shop_url, f"k{number}", body.replace(b"0", b"1") + b" ")
                assert other.status == 422, f"{what}: other content is another request all the same"


UNSERVED = {
    "fastapi": ("its provider is another one", "its provider is removed", "its caller makes the call"),
    "inline": ("a worker makes the call", "its provider is removed"),
}


@pytest.mark.parametrize("name", FACES)
async def test_a_key_at_rest_is_refused(shop_url: str, tmp_path: Path, bank: Bank, monkeypatch: Any, name: str) -> None:
    monkeypatch.setenv("IDEM_DATABASE_URL", shop_url)
    face, path = FACES[name], tmp_path / "idem.toml"
    first: dict[str, Any] = {"inline": True, "model": Charge} if name == "inline" else {**TO_LEDGER, "model": Charge}
    idem, pay = define(path, CONFIG, first)
    if name == "inline":
        with pay.inline(PARAMS, key="k", tenant="acme", path=PATH) as run:
            run.not_executed("the line was closed")
    else:
        assert (await told(face, pay, shop_url, "k", BODY)).status == 202
        await rest(idem, shop_url)
    idem.close()
    before = states(shop_url)
    assert before == [("failed_retryable", "held")]
    for what in UNSERVED.get(name, UNSERVED["fastapi"]):
        config, said = CHANGES[what]
        other, changed = define(path, config, said)
        with closing(other):
            with pytest.raises(Unserved, match="Configure the operation as it was"):
                await told(face, changed, shop_url, "k", BODY)
            assert states(shop_url) == before, what
    idem, pay = define(path, CONFIG, first)
    again = await told(face, pay, shop_url, "k", BODY)
    idem.close()
    assert again.status == (201 if name == "inline" else 202)

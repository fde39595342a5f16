"""`key_owner = "label"`: a key belongs to the tokens with the label that it came with; every other caller hears 422."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import httpx
import pytest
from fix_accept import Acceptor
from fix_api import Client, client
from fix_desk import CONFIGURATION
from fix_spine import Spine
from hypothesis import given
from hypothesis import strategies as st
from producers.application import Application, synced

from idem import Answer, Idem
from idem.decisions import Mismatch, Replay
from idem.errors import ConfigError, ParamsInvalid
from idem.outbox import config
from idem.outbox.domain import fingerprints
from idem.outbox.domain.catalogue import Catalogue

NAME = "pay.keyed"


def changed(spine: Spine, **changes: Any) -> Catalogue:
    """The spine's catalogue with these changes of its operation; the spine keeps its own."""
    return dataclasses.replace(spine, acceptor=Acceptor({}, {})).know(**changes)


async def programs(spine: Spine, *labels: str) -> list[dict[str, str]]:
    """The headers of a token of tenant `t` for each of these labels."""
    return [await spine.token("t", label) for label in labels]


def refused(answer: httpx.Response) -> bool:
    """Whether it says that the key is another program's."""
    found = answer.json()
    return (answer.status_code, found.get("code")) == (422, "key_reused") and "another label" in found["detail"]


async def ask(api: Client, program: dict[str, str], **options: Any) -> httpx.Response:
    return await api.ask("order-1", headers=program, **options)


@pytest.mark.parametrize("left_out", [(), ("/at",)])
async def test_a_key_belongs_to_the_tokens_of_one_label(spine: Spine, left_out: tuple[str, ...]) -> None:
    """While it runs and afterwards; a token that replaces another one keeps the label, and so the keys."""
    shop, billing, rotated = await programs(spine, "shop", "billing", "shop")
    async with client(spine, catalogue=changed(spine, key_owner="label", fingerprint_without=left_out)) as api:
        first = await ask(api, shop)
        assert first.status_code == 202
        assert refused(await ask(api, billing)) and refused(await ask(api, billing, wait=1))
        running = await ask(api, rotated)
        assert (running.status_code, running.json()["code"]) == (409, "in_progress")
        await spine.work()
        mine, renewed = await ask(api, shop), await ask(api, rotated)
        assert mine.status_code == 201 and renewed.content == mine.content
        assert refused(await ask(api, billing))
        other = await ask(api, shop, amount=7)
        assert other.status_code == 422 and "other content" in other.json()["detail"]
        looked = await api.http.get(f"/v1/intents/{first.json()['intent']}", headers=billing)
        assert looked.status_code == 200, "an intent is the tenant's"
    assert spine.effects() == 1


async def test_without_it_a_key_is_the_tenants(spine: Spine) -> None:
    shop, billing = await programs(spine, "shop", "billing")
    async with client(spine) as api:
        assert (await ask(api, shop)).status_code == 202
        await spine.work()
        assert (await ask(api, billing)).content == (await ask(api, shop)).content
    assert spine.effects() == 1


@pytest.mark.parametrize("ended", [False, True])
async def test_a_key_keeps_the_owner_that_it_was_accepted_with(spine: Spine, ended: bool) -> None:
    """P3: the operation gives its keys to labels, or takes that back, while keys are open or answered."""
    shop, billing = await programs(spine, "shop", "billing")
    bound = changed(spine, key_owner="label")
    for before, after, key in ((spine.catalogue, bound, "was-the-tenants"), (bound, spine.catalogue, "was-a-labels")):
        async with client(spine, catalogue=before) as api:
            first = api.intent(await api.ask(key, headers=shop))
        if ended:
            await spine.work()
        async with client(spine, catalogue=after) as api:
            own, others = [await api.ask(key, headers=program) for program in (shop, billing)]
        assert own.status_code == (201 if ended else 409)
        if not ended:
            assert api.intent(own) == first
        if before is bound:
            assert refused(others)
        else:
            assert others.status_code == own.status_code and (not ended or others.content == own.content)


def refuse(_: Any) -> None:
    raise ParamsInvalid([("/note", "a member is missing")])


@pytest.mark.parametrize("how", ["refused now", "gone"])
async def test_what_the_operation_refuses_now_is_recalled_by_its_owner_alone(spine: Spine, how: str) -> None:
    shop, billing = await programs(spine, "shop", "billing")
    bound = changed(spine, key_owner="label")
    async with client(spine, catalogue=bound) as api:
        await ask(api, shop)
        await spine.work()
        answer = await ask(api, shop)
    rest = {name: known for name, known in bound.operations.items() if name != NAME}
    now = (
        dataclasses.replace(bound, operations=rest)
        if how == "gone"
        else changed(spine, key_owner="label", validate=refuse)
    )
    async with client(spine, catalogue=now) as api:
        assert (await ask(api, shop)).content == answer.content
        assert refused(await ask(api, billing))


async def test_of_two_labels_at_once_one_has_the_key(spine: Spine) -> None:
    programs_ = await programs(spine, *(f"program-{n % 2}" for n in range(12)))
    async with client(spine, catalogue=changed(spine, key_owner="label")) as api:
        answers = await asyncio.gather(*(ask(api, program) for program in programs_))
        assert [each.status_code for each in answers].count(202) == 1
        # Who comes while the first one is being accepted hears 409, whatever it asks.
        assert all(refused(each) or each.status_code in (202, 409) for each in answers)
        owner = next(number for number, each in enumerate(answers) if each.status_code == 202) % 2
        assert not any(refused(each) for each in answers[owner::2])
        again = [await ask(api, program) for program in programs_]
        assert [refused(each) for each in again] == [number % 2 != owner for number in range(len(programs_))]
    assert await spine.works() == 1


async def test_what_has_no_token_comes_from_the_tenant(spine: Spine) -> None:
    """Its key has no owner; and a key that has one is refused to the library and to SQL."""
    shop, billing = await programs(spine, "shop", "billing")
    bound = changed(spine, key_owner="label")
    synced(spine.url, bound)
    sql = Application(spine.url)
    async with client(spine, catalogue=bound) as api:
        await asyncio.to_thread(spine.accepted, "by-library")
        await asyncio.to_thread(sql.accepted, "by-sql", '{"amount": 100}')
        await api.ask("by-token", headers=shop)
        await spine.work()
        for key in ("by-library", "by-sql"):
            found = [await api.ask(key, headers=program) for program in (shop, billing)]
            assert [each.status_code for each in found] == [201, 201], key
        assert isinstance(await asyncio.to_thread(spine.accept, "by-library"), Replay)
        assert isinstance(await asyncio.to_thread(spine.accept, "by-token"), Mismatch)
        assert (await asyncio.to_thread(sql.once, "by-token", '{"amount": 100}')).decision == "mismatch"
    assert spine.effects() == 3


LABELS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


@given(LABELS, st.none() | LABELS, st.lists(st.sampled_from(["/at", "/a:b", "/]:"]), max_size=2))
def test_a_fingerprint_is_of_its_owners_request_alone(owner: str, other: str | None, left_out: list[str]) -> None:
    params = {"amount": 1, "at": 2}
    stored = fingerprints.of("op", params, left_out, owner=owner)
    assert fingerprints.left_out(stored) == tuple(sorted(set(left_out)))
    assert fingerprints.composed_as(stored, "op", params, caller=owner) == stored
    assert fingerprints.composed_as(stored, "op", {"amount": 2}, caller=owner) != stored
    same = other == owner
    assert (fingerprints.composed_as(stored, "op", params, caller=other) == stored) is same
    assert fingerprints.is_anothers(stored, other) is not same
    plain = fingerprints.of("op", params, left_out)
    assert fingerprints.composed_as(plain, "op", params, caller=other) == plain
    assert not fingerprints.is_anothers(plain, other)


def test_it_is_said_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_TOKEN", "t")
    file = tmp_path / "idem.toml"
    text = CONFIGURATION.replace("ORIGIN", "http://127.0.0.1:9")
    for said, meant in (("", "tenant"), ('key_owner = "label"', "label"), ('key_owner = "tenant"', "tenant")):
        file.write_text(text.replace('path = "/payments"\nbody', f'path = "/payments"\n{said}\nbody'))
        assert config.load(file).operations[NAME].key_owner == meant
    file.write_text(text.replace('path = "/payments"\nbody', 'path = "/payments"\nkey_owner = "token"\nbody'))
    with pytest.raises(ConfigError, match="key_owner"):
        config.load(file)


def test_an_operation_that_no_token_asks_for_has_no_labels(tmp_path: Path) -> None:
    file = tmp_path / "idem.toml"
    file.write_text('environment = "test"\n')
    idem = Idem(file)
    for kind in ({}, {"inline": True}):
        with pytest.raises(ConfigError, match="key_owner: only keys that come over HTTP"):
            idem.operation("orders.create", answer=lambda outcome: Answer(201, {}), key_owner="label", **kind)
    idem.operation("orders.create", answer=lambda outcome: Answer(201, {}), key_owner="tenant")

"""A key that this process has decided about is asked about first: a guess that changes no answer."""

import pytest
from fix_api import Client, client
from fix_spine import Spine

from idem.outbox.accept import prepare
from idem.outbox.api.met_keys import MetKeys


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the requests of which a provider request was made."""
    keys: list[str] = []
    real = prepare.keys.provider_key

    def noted(secret: bytes, tenant: str, operation: str, key: str, **more: int) -> object:
        keys.append(key)
        return real(secret, tenant, operation, key, **more)

    monkeypatch.setattr(prepare.keys, "provider_key", noted)
    return keys


async def answers(api: Client, *keys: str) -> list[int]:
    return [(await api.ask(key)).status_code for key in keys]


async def test_nothing_is_made_of_a_retry_that_was_met(spine: Spine, made: list[str]) -> None:
    async with client(spine) as api:
        await spine.sent("known")
        assert await answers(api, "known", "known", "new", "new", "known") == [201, 201, 202, 409, 201]
        # What another process has accepted is met at its first retry here.
        assert made.count("known") - 1 == 1  # one of them by `spine.sent`
        assert made.count("new") == 1


async def test_a_key_that_is_there_no_more_is_a_new_one(spine: Spine) -> None:
    async with client(spine) as api:
        assert await answers(api, "gone", "gone") == [202, 409]
        await spine.run(_forget)
        assert await answers(api, "gone", "gone") == [202, 409]


async def _forget(connection: object) -> None:
    run = connection.execute  # type: ignore[attr-defined]
    await run("SET session_replication_role = replica")
    for table in ("outbox", "requests", "evidence", "idempotency_keys", "intents"):
        await run(f"DELETE FROM idem.{table}")
    await run("RESET session_replication_role")


async def test_other_content_is_refused_and_the_same_content_is_not(spine: Spine) -> None:
    async with client(spine) as api:
        assert (await api.ask("k", 100)).status_code == 202
        assert await api.told("k", 200) == (422, "key_reused")
        assert await api.told("k", 200) == (422, "key_reused")
        assert (await api.ask("k", 100)).status_code == 409


async def test_content_that_no_new_key_may_have_is_other_content(spine: Spine) -> None:
    async with client(spine) as api:
        assert (await api.ask("k", 100)).status_code == 202
        for content, told in ((b'{"amount": "many"}', (422, "key_reused")), (b"{", (400, "body_invalid"))):
            headers = {"Content-Type": "application/json"}
            assert await api.told("k", content=content, headers=headers) == told


def test_only_the_last_keys_are_kept() -> None:
    met = MetKeys(most=2)
    for key in ("a", "b", "b", "c"):
        met.add(("t", "o", key))
    assert [("t", "o", key) in met for key in "abc"] == [False, True, True]

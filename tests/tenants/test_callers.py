"""Whose request it is: good, wrong, revoked and hostile tokens, outages, floods."""

import asyncio
import contextlib
import secrets
from typing import Any

import pytest
from fix_database import connected
from fix_tables import Tables
from fix_waiting import until
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.database.pool import AWAY, Database
from idem.outbox.tenants import authentication as module
from idem.outbox.tenants import tokens
from idem.outbox.tenants.authentication import Callers


async def create(database: Database, tenant: str = "acme", label: str = "checkout") -> tuple[Any, str]:
    return await Tables(database).run(tokens.create, tenant, label)


def wrong() -> str:
    return f"Bearer idem_{secrets.token_urlsafe(32)}"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
async def test_a_token_says_whose_request_it_is(counted: Any, scheme: str) -> None:
    token_id, token = await create(counted)
    assert await Callers(counted, 10).caller([f"{scheme} {token}"]) == module.Caller("acme", token_id, "checkout")


async def test_what_is_no_token_is_nobodys_and_nobody_is_asked(counted: Any) -> None:
    _, token = await create(counted)
    callers, before = Callers(counted, 10), counted.wanted
    for authorization in (
        [], [""], ["Bearer"], ["Bearer "], [token], [f"Basic {token}"], [f"Bearer {token}", f"Bearer {token}"],
        [f"Bearer {token}, Bearer {token}"], [f"Bearer {token}x"], [f"Bearer {token[:-1]}"], [f"Bearer x{token}"],
        [f" Bearer {token}"], [f"Bearer\t{token}"], [f"Bearer {token}\n"], [f"Bearer {token.upper()}"],
        [f"Bearer\u00a0{token}"], [f"Bearer {token[:-1]}\u0130"],
    ):  # fmt: skip
        assert await callers.caller(authorization) is None, authorization
    assert counted.wanted == before


async def test_an_unknown_token_and_one_of_another_are_told_apart(counted: Any) -> None:
    _, ours = await create(counted, "a")
    _, theirs = await create(counted, "b")
    callers = Callers(counted, 10)
    found = await asyncio.gather(
        *(callers.caller([f"Bearer {each}"]) for each in (ours, theirs)), callers.caller([wrong()])
    )
    assert [each.tenant if each else None for each in found] == ["a", "b", None]


async def test_no_statement_for_what_is_remembered_good_and_wrong_alike(counted: Any) -> None:
    _, token = await create(counted)
    callers, unknown = Callers(counted, 60), wrong()
    await asyncio.gather(callers.caller([f"Bearer {token}"]), callers.caller([unknown]))
    before = counted.wanted
    for _ in range(1000):
        assert await callers.caller([f"Bearer {token}"]) is not None
        assert await callers.caller([unknown]) is None
    assert counted.wanted == before


async def test_a_revoked_token_ends_within_the_cache_time(counted: Any) -> None:
    token_id, token = await create(counted)
    callers = Callers(counted, 1.0)
    assert await callers.caller([f"Bearer {token}"]) is not None
    await Tables(counted).run(tokens.revoke, token_id, by="ada", reason="lost")

    async def ended() -> bool:
        return await callers.caller([f"Bearer {token}"]) is None

    await until(ended, seconds=5)
    before = counted.wanted
    assert await callers.caller([f"Bearer {token}"]) is None
    assert counted.wanted == before


async def test_without_a_cache_a_revoked_token_ends_at_once(counted: Any) -> None:
    token_id, token = await create(counted)
    callers = Callers(counted, 0)
    assert await callers.caller([f"Bearer {token}"]) is not None
    await Tables(counted).run(tokens.revoke, token_id, by="ada", reason="lost")
    assert await callers.caller([f"Bearer {token}"]) is None


async def test_a_flood_of_wrong_tokens_holds_one_connection_and_evicts_none(counted: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 1000)
    _, token = await create(counted)
    callers = Callers(counted, 600)
    assert await callers.caller([f"Bearer {token}"]) is not None
    before, counted.most = counted.wanted, 0
    flood = [wrong() for _ in range(5000)]
    assert await asyncio.gather(*(callers.caller([each]) for each in flood)) == [None] * 5000
    assert counted.most == 1
    # Whatever waits is asked about together.
    assert counted.wanted - before <= 5000 / module.MOST + 2
    assert len(callers._wrong) <= 1000
    assert not callers._asked
    asked = counted.wanted
    assert await callers.caller([f"Bearer {token}"]) is not None
    assert counted.wanted == asked


async def test_the_same_token_at_once_is_asked_about_once(counted: Any) -> None:
    _, token = await create(counted)
    callers, before = Callers(counted, 60), counted.wanted
    found = await asyncio.gather(*(callers.caller([f"Bearer {token}"]) for _ in range(200)))
    assert all(each is not None for each in found)
    assert counted.wanted == before + 1


async def test_an_outage_is_raised_only_where_the_database_had_to_be_asked(counted: Any, outage: Any) -> None:
    _, known = await create(counted)
    _, fresh = await create(counted)
    callers = Callers(counted, 600)
    assert await callers.caller([f"Bearer {known}"]) is not None
    with outage():
        assert await callers.caller([f"Bearer {known}"]) is not None
        assert await callers.caller(["Bearer nonsense"]) is None
        ends = await asyncio.wait_for(
            asyncio.gather(*(callers.caller([f"Bearer {fresh}"]) for _ in range(20)), return_exceptions=True), 30
        )
        assert len(ends) == 20
        assert all(isinstance(end, AWAY) for end in ends)
        assert not callers._asked

    async def back() -> bool:
        with contextlib.suppress(*AWAY):
            return await callers.caller([f"Bearer {fresh}"]) is not None
        return False

    await until(back, "the answer: an outage is never remembered as `wrong`", every=0)


async def test_a_client_that_goes_away_takes_the_answer_from_nobody_else(counted: Any) -> None:
    _, token = await create(counted)
    callers = Callers(counted, 60)
    first = asyncio.create_task(callers.caller([f"Bearer {token}"]))
    second = asyncio.create_task(callers.caller([f"Bearer {token}"]))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is not None


async def test_the_last_use_is_written_once_a_day(counted: Any, db_url: str) -> None:
    token_id, token = await create(counted)

    async def used() -> Any:
        return (await Tables(counted).run(tokens.token, token_id)).last_used_at

    assert await used() is None
    callers = Callers(counted, 0)
    await callers.caller([f"Bearer {token}"])
    first = await used()
    assert first is not None
    await callers.caller([f"Bearer {token}"])
    assert await used() == first
    await Tables(counted).execute("UPDATE idem.api_tokens SET last_used_at = last_used_at - interval '25 hours'")
    await callers.caller([f"Bearer {token}"])
    assert await used() > first


async def test_a_database_that_takes_no_writes_still_knows_its_callers(counted: Any) -> None:
    _, token = await create(counted)
    async with counted.connection() as connection:
        name = connection.info.dbname
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with connected(counted.address, size=1) as fresh:
        assert await Callers(fresh, 10).caller([f"Bearer {token}"]) is not None


HEADERS = st.lists(
    st.one_of(
        st.binary(max_size=300).map(lambda raw: raw.decode("latin-1")),
        st.text(max_size=100),
        st.builds(lambda token: f"Bearer {token}", st.text(max_size=60)),
        st.builds(lambda token: f"Bearer idem_{token}", st.from_regex(r"[A-Za-z0-9_-]{43}", fullmatch=True)),
    ),
    max_size=3,
)


@given(authorization=HEADERS)
def test_no_bytes_make_a_caller_or_an_error(db_url: str, authorization: list[str]) -> None:
    async def ask() -> Any:
        async with connected(db_url, size=1) as database:
            return await Callers(database, 10).caller(authorization)

    assert asyncio.run(ask()) is None

"""Fail closed: with the database down, slow, full or cut off at the worst moment, a client hears 503 in bounded time,
and the same request with the same key finds the row, or makes it. Never twice, never half."""

import asyncio

import psycopg
from fix_api import PAY, Client
from fix_line import through_a_line
from fix_spine import Spine


async def test_a_database_that_is_down_is_a_503_and_nothing_is_written(spine: Spine) -> None:
    async with through_a_line(spine) as (api, line):
        assert (await api.ask(key="before")).status_code == 202
        line.down = True
        answers = await asyncio.gather(*(api.ask(key=f"k{n}") for n in range(30)))
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
        assert (await api.http.get("/readyz")).status_code == 200
        assert len(await spine.all("SELECT FROM idem.intents")) == 1
        line.down = False
        again = await asyncio.gather(*(api.ask(key=f"k{n}") for n in range(30)))
        assert {answer.status_code for answer in again} <= {202, 503}
        for n in range(30):
            if again[n].status_code == 503:
                assert (await api.ask(key=f"k{n}")).status_code == 202
    assert len(await spine.all("SELECT FROM idem.intents")) == 31


async def test_while_the_database_is_away_one_request_asks_and_the_others_hear_503_at_once(spine: Spine) -> None:
    """Whether they are answered at once is told by their order, not by a clock: all but one end while that one asks."""
    async with through_a_line(spine, timeout=3) as (api, line):
        assert (await api.ask(key="before")).status_code == 202
        line.down = True
        for n in range(3):
            assert (await api.ask(key=f"first-{n}")).status_code == 503
        asked = {asyncio.create_task(api.ask(key=f"k{n}")) for n in range(20)}
        left = set(asked)
        while len(left) > 1:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result().status_code for task in done} == {503}
            if left and len(left) < len(asked) - 1:
                assert not api.api._store._outage.ask()  # one is asking still
        await asyncio.wait(asked)
        # Who has no token that is remembered is answered as soon.
        unknown = [api.ask(headers={"Authorization": f"Bearer idem_{n:043}"}) for n in range(5)]
        assert {answer.status_code for answer in await asyncio.gather(*unknown)} == {503}
        line.down = False
        async with asyncio.timeout(30):
            while (await api.ask(key="after")).status_code == 503:
                await asyncio.sleep(0.1)
        answers = await asyncio.gather(*(api.ask(key=f"again-{n}") for n in range(20)))
        assert {answer.status_code for answer in answers} == {202}


async def test_a_row_that_is_locked_is_no_outage(spine: Spine) -> None:
    """Its own requests end with 503; those for other keys are answered."""
    async with through_a_line(spine) as (api, _):
        assert (await api.ask(key="locked")).status_code == 202
        async with await psycopg.AsyncConnection.connect(spine.url) as other:
            await other.execute("SELECT FROM idem.idempotency_keys WHERE idempotency_key = 'locked' FOR UPDATE")
            for _ in range(3):
                await api.ask(key="locked")
            assert (await api.ask(key="free")).status_code == 202


async def test_an_unknown_token_is_not_refused_while_nobody_can_say(spine: Spine) -> None:
    async with through_a_line(spine) as (api, line):
        line.down = True
        answer = await api.ask(headers={"Authorization": "Bearer idem_" + "a" * 43})
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


async def test_hazard_21_the_answer_to_the_commit_is_lost(spine: Spine) -> None:
    """503; the same request again finds the row: one intent, one effect."""
    async with through_a_line(spine) as (api, line):
        assert (await api.ask(key="warm")).status_code == 202
        line.cut_answers = 1
        lost = await api.ask(key="k1")
        assert line.cut_answers == 0
        assert (lost.status_code, lost.json()["code"]) == (503, "store_unavailable")
        await spine.one("SELECT FROM idem.idempotency_keys WHERE idempotency_key = 'k1'")
        assert await api.told(key="k1") == (409, "in_progress")
        await spine.work()
        assert (await api.ask(key="k1")).status_code == 201
    assert len(spine.bank.log.payments()) == 2


async def test_a_locked_table_is_a_503_in_bounded_time_and_never_half(spine: Spine) -> None:
    """Every connection of the pool hangs behind a lock: statements time out, later requests find the pool exhausted."""
    async with through_a_line(spine) as (api, _):
        assert (await api.ask(key="warm")).status_code == 202
        with psycopg.connect(spine.url) as locking:
            locking.execute("LOCK TABLE idem.intents IN ACCESS EXCLUSIVE MODE")
            answers = await asyncio.gather(*(api.ask(key=f"k{n}") for n in range(20)))
            locking.rollback()
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "store_unavailable")}
        assert {(await api.ask(key=f"k{n}")).status_code for n in range(20)} <= {202, 409}
    assert len(await spine.all("SELECT FROM idem.intents")) == 21


async def test_ib_173_clients_that_close_right_after_sending(spine: Spine) -> None:
    """Each key is fully accepted (the same request again gets the same id) or absent; nothing is left in a
    transaction (IB-068)."""
    async with through_a_line(spine, timeout=5) as (api, _):
        host, port = api.url.removeprefix("http://").split(":")
        for n in range(200):
            _, writer = await asyncio.open_connection(host, int(port))
            body = b'{"amount": 100}'
            writer.write(
                b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nIdempotency-Key: c-%d\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (PAY.encode(), api.token.encode(), n, len(body), body)
            )
            if n % 2:
                await writer.drain()
            writer.transport.abort() if n % 3 == 0 else writer.close()
        # Those that were whole are accepted, whether their clients are there or not: until no more are.
        known = -1
        while known != (known := len(await spine.all("SELECT FROM idem.idempotency_keys"))):
            await asyncio.sleep(1)
        before = {
            row["idempotency_key"]: row["intent_id"]
            for row in await spine.all("SELECT idempotency_key, intent_id FROM idem.idempotency_keys")
        }
        for n in range(200):
            answer = await api.ask(key=f"c-{n}")
            if f"c-{n}" in before:
                assert (answer.status_code, api.intent(answer)) == (409, before[f"c-{n}"])
            else:
                assert answer.status_code == 202
        idle = "SELECT FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' AND datname = current_database()"
        assert await spine.all(idle) == []
    whole = await spine.one(
        "SELECT (SELECT count(*) FROM idem.intents) AS intents, (SELECT count(*) FROM idem.outbox) AS rows,"
        " (SELECT count(*) FROM idem.requests) AS requests, (SELECT count(*) FROM idem.idempotency_keys) AS keys"
    )
    assert set(whole.values()) == {200}


async def test_a_provider_that_is_down_takes_no_api_out_of_service(api: Client, spine: Spine) -> None:
    """Breaker open, rows waiting: the API accepts and stays ready."""
    spine.bank.script(None, ["drop_before_acting"] * 50)
    for n in range(20):
        assert (await api.ask(key=f"k{n}")).status_code == 202
        await spine.work()
        assert (await api.http.get("/readyz")).status_code == 200

"""A handler that fails is tried again, then a dead letter, and holds up nothing but its own intent's later events."""

import asyncio
import threading
from typing import Any

import pytest
from fix_database import connected
from fix_line import Line, target, through
from fix_waiting import running, until
from handlers.conftest import WRITE, House, words
from pydantic import BaseModel
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from idem import Settled
from idem.errors import OperatorRefused
from idem.outbox.handlers import executors, failures
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.operator import dead_letters
from idem.testing.proxy import Proxy

broken: set[Any] = set()


def moody(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("moody", settled))
    if settled.intent in broken:
        raise ValueError("the shop is closed")


def calm(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("calm", settled))


async def exhaust(house: House, runner: HandlerRunner, times: int) -> None:
    for _ in range(times):
        await runner.run_once()
        house.due()


async def test_a_failing_handler_is_tried_again_later_and_later_and_then_stops(house: House) -> None:
    async with house.runner(house.handlers(moody, calm)) as runner:
        await runner.run_once()
        bad = house.intent("rested", "corrected")
        broken.add(bad)
        waits = []
        for attempt in range(1, 8):
            await runner.run_once()
            rows = [each for each in house.waiting() if each["intent_id"] == bad]
            assert [each["failures"] for each in rows] == [attempt, 0]
            due = house.run(
                "SELECT extract(epoch FROM due_at - statement_timestamp())::float8 AS s FROM idem.handler_work"
            )
            waits.append(min(each["s"] for each in due))
            # A failure has left nothing but its count, and is not tried before its time.
            assert await runner.run_once() == 0
            house.due()
        for seen, least in zip(waits, (1, 4, 16, 64, 256, 600, 600), strict=True):
            assert least - 5 < seen < least * 1.2 + 1
        good = house.intent("completed")
        await runner.run_once()
        assert house.letters()[0]["details"] == {
            "handler": f"pay:{moody.__module__}.moody", "intent": str(bad), "number": 1, "event": "rested",
            "attempts": 8, "error": "ValueError", "message": "the shop is closed",
        }  # fmt: skip
        house.due()
        await runner.run_once()
        assert [number for name, number in house.orders(bad) if name == "calm"] == [1, 2]
        assert [number for name, number in house.orders(bad) if name == "moody"] == []
        assert sorted(house.orders(good)) == [("calm", 1), ("moody", 1)]
        assert len(house.letters()) == 1


async def decide(house: House, what: Any, **words_: Any) -> Any:
    async with connected(house.url) as database, database.connection() as connection:
        return await what(connection, house.letters()[0]["id"], by="anna", **words_)


async def test_a_redrive_runs_it_again_and_the_later_ones_after_it(house: House) -> None:
    async with house.runner(house.handlers(moody), attempts=2) as runner:
        await runner.run_once()
        bad = house.intent("rested", "corrected")
        broken.add(bad)
        await exhaust(house, runner, 2)
        assert len(house.letters()) == 1
        house.event(bad, "completed")
        await exhaust(house, runner, 2)
        assert house.orders(bad) == []
        with pytest.raises(OperatorRefused, match="occurred again"):
            await decide(house, dead_letters.run_again, reason="mended", seen=7)
        # Not mended after all: it fails as often again, and has its letter again.
        await decide(house, dead_letters.run_again, reason="mended", seen=1)
        assert house.letters() == []
        await exhaust(house, runner, 2)
        assert len(house.letters()) == 1
        await decide(house, dead_letters.run_again, reason="mended now", seen=1)
        broken.discard(bad)
        assert await runner.run_once() == 3
    assert house.orders(bad) == [("moody", 1), ("moody", 2), ("moody", 3)]
    kinds = house.run("SELECT kind, details FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id", i=bad)
    assert [each["kind"] for each in kinds] == ["handler_redriven", "handler_redriven"]
    assert kinds[1]["details"]["reason"] == "mended now" and kinds[1]["details"]["by"] == "anna"


async def test_a_skipped_event_is_on_record_and_lets_the_later_ones_go_on(house: House) -> None:
    async with house.runner(house.handlers(moody), attempts=1) as runner:
        await runner.run_once()
        bad = house.intent("rested", "corrected")
        broken.add(bad)
        await runner.run_once()
        broken.discard(bad)
        with pytest.raises(OperatorRefused, match="say why"):
            await decide(house, dead_letters.close_dead_letter, reason=" ", version=0, seen=1)
        with pytest.raises(OperatorRefused, match="resolve"):
            await decide(house, dead_letters.discard, reason="x", seen=1)
        await decide(house, dead_letters.skip_event, reason="done by hand", seen=1)
        assert await runner.run_once() == 1
    assert house.orders(bad) == [("moody", 2)]
    marks = house.run(
        "SELECT e.number, h.skipped FROM idem.handled_events h JOIN idem.events e ON e.id = h.event_id ORDER BY 1"
    )
    assert marks == [{"number": 1, "skipped": True}, {"number": 2, "skipped": False}]
    assert house.letters() == [] and house.waiting() == []
    assert house.run("SELECT kind FROM idem.evidence WHERE intent_id = %(i)s", i=bad) == [{"kind": "handler_skipped"}]


def commits(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("commits", settled))
    db.commit()


def commits_and_hides(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("commits_and_hides", settled))
    try:
        db.commit()
    except Exception:
        db.get_bind()


def rolls_back(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("rolls_back", settled))
    db.rollback()


def begins(db: Session, settled: Settled[Any]) -> None:
    with db.begin():
        db.execute(text(WRITE), words("begins", settled))


def commits_below(db: Connection, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("commits_below", settled))
    db.commit()


def closes(db: Session, settled: Settled[Any]) -> None:
    with db:
        db.execute(text(WRITE), words("closes", settled))


async def commits_async(db: AsyncSession, settled: Settled[Any]) -> None:
    await db.execute(text(WRITE), words("commits_async", settled))
    await db.commit()


ENDS = (commits, commits_and_hides, rolls_back, begins, commits_below, closes, commits_async)


@pytest.mark.parametrize("function", ENDS, ids=lambda f: f.__name__)
async def test_a_handler_that_ends_the_transaction_is_told_and_leaves_nothing(house: House, function: Any) -> None:
    assert house.orders(await house.settled(function, calm)) == [("calm", 1)]
    (letter,) = house.letters()
    assert letter["details"]["error"] == "OwnTransaction" and letter["details"]["attempts"] == 1
    assert "idem commits" in letter["details"]["message"]


async def test_a_commit_behind_our_back_is_never_run_again(house: House) -> None:
    """Nothing can refuse it; its work stands without a mark, so that a second attempt would do it twice."""

    def commits_by_hand(db: Session, settled: Settled[Any]) -> None:
        db.execute(text(WRITE), words("by_hand", settled))
        db.execute(text("COMMIT"))

    async with house.runner(house.handlers(commits_by_hand)) as runner:
        await runner.run_once()
        intent = house.intent("completed")
        await exhaust(house, runner, 3)
    assert house.orders(intent) == [("by_hand", 1)]
    assert house.letters()[0]["details"]["error"] == "OwnTransaction"
    assert house.marks() == 0


async def test_a_savepoint_of_the_handler_s_own_is_allowed(house: House) -> None:
    def tries(db: Session, settled: Settled[Any]) -> None:
        try:
            with db.begin_nested():
                db.execute(text("SELECT 1 / 0"))
        except SQLAlchemyError:
            db.execute(text(WRITE), words("tries", settled))

    assert house.orders(await house.settled(tries)) == [("tries", 1)]
    assert house.marks() == 1


release = threading.Event()


def sleeps_in_python(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("sleeps", settled))
    release.wait(30)


def sleeps_in_the_database(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("sleeps", settled))
    db.execute(text("SET LOCAL statement_timeout = 0"))
    db.execute(text("SELECT pg_sleep(30)"))


async def sleeps_on_its_loop(db: AsyncSession, settled: Settled[Any]) -> None:
    await db.execute(text(WRITE), words("sleeps", settled))
    await asyncio.sleep(30)


async def blocks_its_loop(db: AsyncSession, settled: Settled[Any]) -> None:
    await db.execute(text(WRITE), words("sleeps", settled))
    release.wait(30)


SLEEPERS = (sleeps_in_python, sleeps_in_the_database, sleeps_on_its_loop, blocks_its_loop)


@pytest.mark.parametrize("function", SLEEPERS, ids=lambda f: f.__name__)
async def test_a_handler_that_hangs_is_ended_and_holds_up_no_other(house: House, function: Any) -> None:
    release.clear()

    async def calm_too(db: AsyncSession, settled: Settled[Any]) -> None:
        await db.execute(text(WRITE), words("calm_too", settled))

    async with house.runner(house.handlers(function, calm, calm_too), limit=1.5, attempts=1) as runner:
        await runner.run_once()
        first, second = house.intent("completed"), house.intent("completed")
        async with running(runner):
            await until(lambda: len(house.orders()) == 4, seconds=20)
            # Before its time is up everybody else has heard.
            assert sorted(house.orders()) == [("calm", 1), ("calm", 1), ("calm_too", 1), ("calm_too", 1)]
            assert house.letters() == []
            await until(lambda: len(house.letters()) == 2, seconds=20)
            assert {each["details"]["error"] for each in house.letters()} == {"TimeoutError"}
            assert {each["details"]["intent"] for each in house.letters()} == {str(first), str(second)}
            release.set()
    # What it does when it wakes has no transaction any more.
    await asyncio.sleep(0.3)
    assert len(house.orders()) == 4


async def test_a_thread_that_hangs_while_the_database_is_away_counts_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left behind without its connection being ended, and no more of its turns begin until it has ended."""
    monkeypatch.setattr(executors, "LEFT_BEHIND", 1)
    release.clear()
    began: list[Any] = []
    line = Line()

    def hangs(db: Session, settled: Settled[Any]) -> None:
        began.append(settled.intent)
        release.wait(30)

    async with (
        Proxy(target(house.url), line) as proxy,
        House(through(house.url, proxy)).runner(house.handlers(hangs, calm), limit=0.5) as runner,
    ):
        await runner.run_once()
        first = house.intent("completed")
        async with running(runner):
            await until(lambda: bool(began))
            line.down = True
            await until(lambda: not runner._executions, seconds=20)
            line.down = False
            house.due()
            for _ in range(3):
                later = house.intent("completed")
                await until(lambda intent=later: house.orders(intent) == [("calm", 1)], seconds=20)
            assert began == [first]
            release.set()
            await until(lambda: len(set(began)) == 4, seconds=20)


async def test_params_that_fit_the_model_no_longer_are_a_failure_that_does_not_quote_them(house: House) -> None:
    class Model(BaseModel):
        amount: int

    def never(db: Session, settled: Settled[Model]) -> None:
        raise AssertionError

    await house.settled(never, read=Model, params='{"amount": "4111111111111111x"}', attempts=1)
    (letter,) = house.letters()
    assert letter["details"]["error"] == "ValidationError" and "amount" in letter["details"]["message"]
    assert "41111111" not in str(letter)  # four digits may stand in any UUID


async def test_a_statement_that_fails_is_named_without_its_parameters(house: House) -> None:
    def fails(db: Session, settled: Settled[Any]) -> None:
        db.execute(text("INSERT INTO public.orders (intent, said) VALUES (NULL, :said)"), {"said": "4111111111111111"})

    await house.settled(fails, attempts=1)
    (letter,) = house.letters()
    assert letter["details"]["error"] == "NotNullViolation" and "null value in column" in letter["details"]["message"]
    assert "41111111" not in str(letter)  # four digits may stand in any UUID


async def test_a_database_that_goes_away_is_no_failure_of_the_handler(house: House) -> None:
    """Every connection is ended, as by a restart; nothing is counted that was never begun, and all is told once."""
    async with house.runner(house.handlers(calm)) as runner:
        await runner.run_once()
        async with running(runner):
            for number in range(60):
                house.intent("completed")
                if number % 20 == 10:
                    house.run(
                        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                        " WHERE application_name = 'idem-handlers' AND datname = current_database()"
                    )
                await asyncio.sleep(0.01)
            await until(lambda: house.due() or house.marks() == 60)
    assert house.run("SELECT count(*) AS n, count(DISTINCT intent) AS once FROM public.orders") == [
        {"n": 60, "once": 60}
    ]
    assert house.letters() == []


def test_eight_attempts_take_about_half_an_hour() -> None:
    waits = [min(failures.CAP, 4.0**n) for n in range(7)]
    assert waits == [1, 4, 16, 64, 256, 600, 600] and 25 * 60 < sum(waits) * 1.1 < 35 * 60

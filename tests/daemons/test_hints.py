"""What wakes an idle worker: a hint that names the lanes, at once and again when the commit is over."""

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest
from fix_database import connected
from fix_spine import Spine
from fix_sql import engine_of
from fix_waiting import until

from idem import Answer, Idem
from idem.outbox.daemon.listener import Listener
from idem.outbox.database import channel
from idem.outbox.database.notify import Nudge
from idem.sending import Sending, SendRequest


@pytest.fixture
def nudge(db_url: str) -> Iterator[Nudge]:
    made = Nudge(db_url)
    yield made
    made.close()


@pytest.fixture
def heard(db_url: str) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(db_url, autocommit=True) as connection:
        connection.execute("LISTEN idem_outbox")
        yield connection


def said(connection: "psycopg.Connection[tuple[object, ...]]", seconds: float = 0.3) -> list[str]:
    return [notice.payload for notice in connection.notifies(timeout=seconds)]


def test_a_commit_under_way_is_announced_at_once_and_again_when_it_is_over(
    nudge: Nudge, heard: "psycopg.Connection[tuple[object, ...]]"
) -> None:
    over = threading.Event()
    nudge.wake("bank/main", over.is_set)
    assert said(heard) == ["bank/main"]
    over.set()
    assert said(heard) == ["bank/main"]


def test_a_commit_that_is_over_is_hinted_once(nudge: Nudge, heard: "psycopg.Connection[tuple[object, ...]]") -> None:
    nudge.wake("bank/main")
    assert said(heard) == ["bank/main"]


def test_a_commit_that_lasts_keeps_no_other_waiting(
    nudge: Nudge, heard: "psycopg.Connection[tuple[object, ...]]"
) -> None:
    nudge.wake("bank/slow", lambda: False)
    assert said(heard) == ["bank/slow"]
    nudge.wake("bank/main")
    assert said(heard) == ["bank/main"]


def test_a_notification_names_a_few_lanes_and_else_all() -> None:
    few = {channel.lane_of("bank", "main"), channel.lane_of("mail", "a b")}
    assert channel.lanes(channel.payload(few)) == few
    many = {channel.lane_of("bank", str(n)) for n in range(channel.MOST + 1)}
    assert channel.lanes(channel.payload(many)) is channel.lanes(channel.payload({*few, channel.ALL})) is None


async def test_a_hint_wakes_the_lanes_that_it_names(spine: Spine) -> None:
    async with connected(spine.url, size=1) as database:
        listener, stop = Listener(database), asyncio.Event()
        bank, mail, rest = listener.subscribe("bank/main"), listener.subscribe("mail/main"), listener.subscribe()
        listening = asyncio.create_task(listener.run(stop))
        try:
            await asyncio.wait_for(listener.listening.wait(), 10)
            for event in (bank, mail, rest):
                event.clear()
            await spine.execute("SELECT pg_notify('idem_outbox', 'bank/main')")
            await until(bank.is_set)
            assert not mail.is_set() and not rest.is_set()
            await spine.execute("SELECT pg_notify('idem_outbox', '')")
            await until(lambda: mail.is_set() and rest.is_set())
        finally:
            listening.cancel()


async def send(request: SendRequest, call: Sending) -> None:
    raise AssertionError


def test_what_the_library_accepts_is_hinted_when_it_is_committed(
    spine: Spine, heard: "psycopg.Connection[tuple[object, ...]]"
) -> None:
    idem = Idem()
    idem.provider("mailer", send=send, on_unsettleable="operator")
    operation = idem.operation("mail.send", provider="mailer", answer=lambda _: Answer(201))
    try:
        with engine_of(spine.url).connect() as connection:
            with connection.begin() as transaction:
                operation.accept(connection, {}, key="k1")
                transaction.rollback()
            assert said(heard) == []
            with connection.begin():
                operation.accept(connection, {}, key="k1")
                assert said(heard, 0.1) == []
        # Once or twice, as fast as the commit is.
        assert set(said(heard)) == {"mailer/main"}
    finally:
        idem.close()

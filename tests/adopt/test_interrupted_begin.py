"""Attacks upon what an application adopts: code that renders."""

import asyncio
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
from fix_spine import Spine
from producers.application import Application, synced
from pydantic import BaseModel

from idem import Answer, Idem, Misuse, Operation
from idem.outbox.worker.freezing import Freezer
from idem.outcomes import Succeeded


class Rude(BaseException):
    def __repr__(self) -> str:
        raise SystemExit("no repr")

    def __str__(self) -> str:
        raise SystemExit("no str")


class RudeError(Exception):
    def __str__(self) -> str:
        raise SystemExit("no str")


def raising(error: BaseException) -> Any:
    def code(_params: Any) -> Any:
        raise error

    return code


@pytest.mark.parametrize("error", [Rude(), RudeError(), KeyboardInterrupt()])
async def test_a_rude_exception_takes_one_row(spine: Spine, error: BaseException) -> None:
    synced(spine.url, spine.catalogue)
    intent = Application(spine.url).accepted()
    spine.know(request=raising(error))
    freezer = Freezer(spine.database, spine.catalogue)
    assert await freezer.once() == 1
    assert await spine.letters(intent) == ["unrenderable"]
    assert not +freezer._running


class Parcel(BaseModel):
    weight: int


@pytest.fixture
def book(db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operation[Parcel]:
    """An inline operation without a provider that could be asked."""
    path = tmp_path / "inline.toml"
    path.write_text('environment = "test"\n')
    monkeypatch.setenv("IDEM_DATABASE_URL", db_url)
    return Idem(path).operation("labels.book", Parcel, inline=True, answer=lambda o: Answer(201, {"l": o.reference}))


class TornAway(BaseException):
    """What a soft time limit raises in the midst of anything."""


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise TornAway


def again(book: Operation[Parcel], key: str) -> bool:
    """Whether the key may be run soon, far before its lease would be over."""
    until = time.monotonic() + 15
    while time.monotonic() < until:
        with book.inline(Parcel(weight=1), key=key) as run:
            if run.mine:
                run.complete(Succeeded("label"))
                return True
        time.sleep(0.2)
    return False


def test_who_is_torn_away_while_it_begins_leaves_no_lease_behind(book: Operation[Parcel], db_url: str) -> None:
    assert again(book, "warm")
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with psycopg.connect(db_url) as other:
            other.execute("LOCK TABLE idem.outbox")
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(TornAway), book.inline(Parcel(weight=1), key="k"):
                raise AssertionError("the block is not to begin")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert again(book, "k")


async def test_a_task_that_is_cancelled_as_its_run_has_begun_leaves_no_lease_behind(book: Operation[Parcel]) -> None:
    assert await asyncio.to_thread(again, book, "warm")
    began = asyncio.Event()

    async def caller() -> None:
        async with book.inline_async(Parcel(weight=1), key="k"):
            began.set()

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(1.0)  # noqa: ASYNC251 (idem's loop goes on, and this one has not heard of it yet)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert not began.is_set()
    assert await asyncio.to_thread(again, book, "k")


def test_a_child_that_was_forked_inside_a_block_is_refused_and_does_not_hang(book: Operation[Parcel]) -> None:
    with book.inline(Parcel(weight=1), key="k") as run:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                run.complete(Succeeded("label"))
            except Misuse:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        run.complete(Succeeded("label"))
    assert run.answer().status == 201

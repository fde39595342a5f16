"""An inline call in the user's own code: one effect, whatever the caller does; synchronous and asynchronous."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adopt.shop import Charge
from fix_sql import engine_of
from sqlalchemy.orm import Session

from idem import Answer, Idem, Misuse, Operation
from idem.outcomes import Succeeded

CONFIG = 'environment = "test"\n'


@pytest.fixture
def book(shop_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operation[Charge]]:
    """An inline operation without a provider that could be asked."""
    path = tmp_path / "inline.toml"
    path.write_text(CONFIG)
    monkeypatch.setenv("IDEM_DATABASE_URL", shop_url)
    yield Idem(path).operation("labels.book", Charge, inline=True, answer=lambda o: Answer(201, {"label": o.reference}))


PARAMS = Charge(amount=1, currency="eur")


def run(book: Operation[Charge], calls: list[str], key: str = "k1") -> Answer:
    with book.inline(PARAMS, key=key) as run:
        if run.mine:
            assert 0 < run.remaining <= 60
            calls.append(run.provider_key)
            run.complete(Succeeded("label-1"))
    return run.answer()


def test_the_block_runs_once_and_its_answer_stays(book: Operation[Charge]) -> None:
    calls: list[str] = []
    first, again = run(book, calls), run(book, calls)
    assert (first.status, first.body) == (201, b'{"label":"label-1"}')
    assert (again.body, again.headers["Idempotent-Replayed"]) == (first.body, "true")
    assert len(calls) == 1


async def test_asynchronous_code_does_the_same(book: Operation[Charge]) -> None:
    calls = 0
    for _ in range(2):
        async with book.inline_async(PARAMS, key="k1") as run:
            if run.mine:
                calls += 1
                await run.complete(Succeeded("label-1"))
        answer = await run.answer()
        assert (answer.status, answer.body) == (201, b'{"label":"label-1"}')
    assert calls == 1


def test_a_block_that_raises_is_unknown_and_never_run_again(book: Operation[Charge]) -> None:
    with pytest.raises(TimeoutError), book.inline(PARAMS, key="k1") as first:
        assert first.mine
        raise TimeoutError("the line broke")
    with book.inline(PARAMS, key="k1") as again:
        assert not again.mine
    # Nobody can be asked, so a person is.
    assert (again.answer().status, b"needs_operator" in again.answer().body) == (409, True)


def test_what_is_proven_not_executed_is_done_by_the_clients_retry(book: Operation[Charge]) -> None:
    with book.inline(PARAMS, key="k1") as first:
        sent_with = first.provider_key
        first.not_executed("connection refused")
    assert first.answer().status == 503
    calls: list[str] = []
    assert run(book, calls).status == 201
    assert calls == [sent_with]


def test_two_threads_with_one_key_make_one_call(book: Operation[Charge]) -> None:
    calls: list[str] = []
    answers: list[Answer] = []
    barrier = threading.Barrier(8)

    def one() -> None:
        barrier.wait()
        answers.append(run(book, calls))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert {answer.status for answer in answers} <= {201, 409}
    assert run(book, calls).status == 201


def test_other_content_under_the_same_key_is_refused(book: Operation[Charge]) -> None:
    run(book, [])
    with book.inline(Charge(amount=2, currency="eur"), key="k1") as other:
        assert not other.mine
    assert other.answer().status == 422


def test_a_missing_key_is_told_by_the_answer(book: Operation[Charge]) -> None:
    with book.inline(PARAMS, key=None) as run:
        assert not run.mine
    assert run.answer().status == 400


def test_it_does_not_begin_inside_an_open_transaction(book: Operation[Charge], shop_url: str) -> None:
    engine = engine_of(shop_url)
    with Session(engine) as db, db.begin(), pytest.raises(Misuse, match="inside an open transaction"):
        book.inline(PARAMS, key="k1", db=db)


def test_the_order_of_things_is_told_loudly(book: Operation[Charge]) -> None:
    run: Any
    with book.inline(PARAMS, key="k1") as run:
        run.complete(Succeeded("label-1"))
    with book.inline(PARAMS, key="k1") as run, pytest.raises(Misuse, match="not yours"):
        run.complete(Succeeded("label-2"))
    with pytest.raises(Misuse, match="before the block"):
        book.inline(PARAMS, key="k2").answer()

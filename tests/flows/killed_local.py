"""A worker that runs local steps as a process of its own, for tests that kill it, from outside or at a chosen point."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import kill_worker
from fix_dying import die, dies, dies_async
from fix_spine import catalogue
from flows.local import WRITE, before, flow, local
from flows.order import step
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.operation import StepSpec
from idem.outbox.handlers import executor, turn
from idem.outbox.providers.local import LocalProvider
from idem.outbox.worker import local_rows
from idem.outbox.worker.local_turn import LocalTurn

_point = ""


def words(name: str, params: Any, results: Any) -> dict[str, Any]:
    return {"step": name, "amount": params["amount"], "said": before(results)}


def writing(name: str, *, asynchronous: bool) -> Callable[..., Any]:
    """The function of a local step, which may be the place where the process dies."""

    def run(db: Session, params: Any, results: Any) -> dict[str, Any]:
        db.execute(WRITE, words(name, params, results))
        if _point == "written":
            die()
        return {name: params["amount"]}

    async def run_async(db: AsyncSession, params: Any, results: Any) -> dict[str, Any]:
        await db.execute(WRITE, words(name, params, results))
        if _point == "written":
            die()
        return {name: params["amount"]}

    return run_async if asynchronous else run


def steps(*, asynchronous: bool) -> tuple[StepSpec, ...]:
    """Local, call, local, call."""
    return (
        local("ride", writing("ride", asynchronous=asynchronous)),
        step("charge", on_refusal="operator"),
        local("pay", writing("pay", asynchronous=asynchronous), on_refusal="operator"),
        step("receipt", on_refusal="operator"),
    )


def known(bank_url: str, *, asynchronous: bool) -> Catalogue:
    made = catalogue(bank_url, order=flow(*steps(asynchronous=asynchronous)))
    return replace(made, providers={**made.providers, "local": LocalProvider()})


def run(url: str, bank_url: str, point: str, asynchronous: bool) -> None:
    """Work until SIGTERM, or until this process dies at `point` of the turn of a local step."""
    global _point
    _point = point
    match point:
        case "taken":
            setattr(local_rows, "lock", dies(local_rows.lock, after=True))  # noqa: B010
        case "unended":
            setattr(LocalTurn, "_write", dies(LocalTurn._write, after=False))  # noqa: B010
        case "ended":
            setattr(LocalTurn, "_write", dies(LocalTurn._write, after=True))  # noqa: B010
        case "committed":
            setattr(executor, "run_turn", dies(turn.run_turn, after=True))  # noqa: B010
            setattr(executor, "run_turn_async", dies_async(turn.run_turn_async))  # noqa: B010
    kill_worker.run(url, bank_url, functools.partial(known, asynchronous=asynchronous))

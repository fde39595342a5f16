"""A runner of handlers as a process of its own, for tests that kill it, from outside or at a chosen point."""

import asyncio
import time
from typing import Any

from fix_dying import die, dies, dies_async
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from idem import Settled
from idem.outbox.daemon.daemon import stop_event
from idem.outbox.handlers import executor, turn
from idem.outbox.handlers import run as run_module
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.observe import telemetry

WRITE = "INSERT INTO public.orders (intent, handler, number, said) VALUES (:intent, 'count', :number, :said)"
_point = ""


def words(settled: Settled[Any]) -> dict[str, Any]:
    return {"intent": settled.intent, "number": settled.number, "said": settled.event}


def count(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words(settled))
    if _point == "written":
        die()
    if _point == "slow":
        time.sleep(1)


async def count_async(db: AsyncSession, settled: Settled[Any]) -> None:
    await db.execute(text(WRITE), words(settled))
    if _point == "written":
        die()
    if _point == "slow":
        await asyncio.sleep(1)


def run(url: str, point: str, asynchronous: bool) -> None:
    """Tell `count` of events until SIGTERM, or until this process dies at `point`."""
    global _point
    _point = point
    match point:
        case "taken":
            run_module.settled = dies(run_module.settled, after=True)
        case "unmarked":
            run_module.mark = dies(run_module.mark, after=False)
        case "marked":
            run_module.mark = dies(run_module.mark, after=True)
        case "committed":
            setattr(executor, "run_turn", dies(turn.run_turn, after=True))  # noqa: B010
            setattr(executor, "run_turn_async", dies_async(turn.run_turn_async))  # noqa: B010
    telemetry.set_up(json=True, level="error")
    asyncio.run(_run(url, asynchronous))


async def _run(url: str, asynchronous: bool) -> None:
    known = handler("pay", count_async if asynchronous else count, name="count")
    with stop_event() as stop:
        await HandlerRunner(url, {known.name: known}, poll=0.02).run(stop)

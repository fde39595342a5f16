"""`idem run --single-process`: all daemons in one process and one event loop, without a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from idem.cli import api, daemons
from idem.cli.base import opening
from idem.cli.base.failures import FAILED, OK
from idem.cli.base.output import say
from idem.cli.base.probes import probes

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.address import Address
    from idem.outbox.domain.catalogue import Catalogue

At: TypeAlias = tuple[str, int] | None
"""A host and a port to listen on, or None."""

POOLS: Final = ("worker", "sweeper", "reconciler")
"""The daemons with a connection pool each, so that a lock that one waits for does not block the others."""


def run(config: Path | None, found: Configuration, address: Address, at: At, beside: At, stop_timeout: float) -> int:
    """Run worker, sweeper, reconciler and, with an address, the API until SIGTERM; returns the exit code.

    `beside`: where it also serves metrics and probes. If one daemon fails, the others finish their running calls, for
    `stop_timeout` seconds at most, and the exit code is 1.
    """
    failed = asyncio.run(_all(config, found, address, at, beside, stop_timeout))
    if failed:
        say(f"idem: {' and '.join(failed)} failed, so all daemons of this process have stopped. Restart `idem run`")
    return FAILED if failed else OK


async def _all(
    config: Path | None, found: Configuration, address: Address, at: At, beside: At, stop_timeout: float
) -> list[str]:
    from idem.outbox.daemon.daemon import stop_event
    from idem.outbox.http_server.serving import listen
    from idem.sweeper.daemon import Sweeper

    catalogue = opening.catalogue(found)
    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(stop_event())
        # Both ports first, so that nothing is claimed yet if one of them is in use.
        listening = None if at is None else stack.enter_context(contextlib.closing(listen(*at)))
        await stack.enter_async_context(probes(beside, "run", stop))
        of = {name: await stack.enter_async_context(daemons.connected(found, address, name)) for name in POOLS}
        worker = daemons.worker_of(config, of["worker"], catalogue, found)
        sweeper = Sweeper(of["sweeper"], catalogue, found.settings.sweeper)
        reconciler = daemons.reconciler_of(of["reconciler"], catalogue, found)
        clients = None
        if listening is not None:
            clients = await stack.enter_async_context(
                daemons.connected(found, address, "api", lambda found: opening.pool(found, found.settings.api))
            )
        # From here on nothing raises before all daemons run.
        running: dict[str, Coroutine[Any, Any, Any]] = {
            "worker": worker.run(stop), "sweeper": sweeper.run(stop), "reconciler": reconciler.run(stop)
        }  # fmt: skip
        if listening is not None and clients is not None:
            running["api"] = api.serve_until(
                clients, catalogue, found, listening, stop, reserved=_descriptors(found, catalogue)
            )
        return await until_the_end(running, stop, stop_timeout)


def _descriptors(found: Configuration, catalogue: Catalogue) -> int:
    from idem.outbox.http_server import descriptors

    # A call and its DNS look-up for each slot, with the reconciler's share; pools, and sessions that listen. At most
    # half of all descriptors, because not every slot of every lane is in use at once.
    lanes = sum(len(provider.accounts) for provider in catalogue.providers.values())
    most = lanes * 3 * found.settings.worker.slots + (len(POOLS) + 1) * daemons.SIZE
    return min(most, descriptors.raise_limit() // 2)


async def until_the_end(
    running: Mapping[str, Coroutine[Any, Any, Any]], stop: asyncio.Event, stop_timeout: float
) -> list[str]:
    """Run these until `stop`, then wait until they end; returns the names of those that failed.

    One fails if it raises, ends before `stop`, or still runs `stop_timeout` seconds after it. The first failure sets
    `stop` for all, because half of an installation looks alive and is not.
    """
    from idem.outbox.observe import daemon_events

    failed: list[str] = []

    def fail(name: str, why: BaseException | str) -> None:
        if name not in failed:
            failed.append(name)
            daemon_events.daemon_failed(name, why)

    async def tended(name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
            if not stop.is_set():
                fail(name, "it ended before it was asked to stop")
        except (Exception, asyncio.CancelledError) as error:
            fail(name, error)
        finally:
            stop.set()

    tasks = {name: asyncio.create_task(tended(name, work)) for name, work in running.items()}
    await stop.wait()
    await asyncio.wait(tasks.values(), timeout=stop_timeout)
    for name, task in tasks.items():
        if not task.done():
            fail(name, f"it did not stop within {stop_timeout:.0f} s")
            task.cancel()
    return failed

"""One request that waits for its final answer, while its client may go away."""

import asyncio

from starlette.requests import Request

from idem.outbox.accept.status import RequestIdentity, Status
from idem.outbox.api.waiting import Waiters
from idem.outbox.http_server.connections import ENDED


class ClientGone(Exception):
    """The client disconnected; accepted work continues."""


async def wait_for(waiters: Waiters, request: Request, asked: RequestIdentity, seconds: float) -> Status:
    """Wait for the final answer, at most as long as the client asked; the status then.

    The wait ends when the client disconnects (raises ClientGone). A client that has closed its sending side may still
    read, so it gets the present status at once.
    """
    waiting = asyncio.create_task(waiters.wait(asked, seconds))
    gone = asyncio.create_task(_gone(request))
    ended = asyncio.create_task(_ended(request))
    try:
        await asyncio.wait({waiting, gone, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and ended.done():
            waiting.cancel()
            waiting = asyncio.create_task(waiters.wait(asked, 0.0))
            await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientGone
        return waiting.result()
    finally:
        gone.cancel()
        ended.cancel()
        waiting.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _ended(request: Request) -> None:
    event: asyncio.Event = getattr(request.state, ENDED, None) or asyncio.Event()
    await event.wait()

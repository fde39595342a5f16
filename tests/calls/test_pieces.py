"""An answer in tiny pieces, over a real socket: it is bounded by their number, and the loop goes on meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from idem.outbox.calls import answer
from idem.outbox.domain.contract import Contract, Response

SLOW = Contract("bank", connect_timeout=5.0, deadline=60.0)
HEAD = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunks(number: int, piece: bytes) -> Callable[[Any], Awaitable[None]]:
    """A server that answers with so many chunks, all at once."""

    async def answers(wire: Any) -> None:
        await wire.request()
        size = b"%x\r\n" % len(piece)
        wire.writer.write(HEAD + (size + piece + b"\r\n") * number + b"0\r\n\r\n")
        await wire.writer.drain()
        await wire.reader.read()  # until the other side goes

    return answers


def segments(number: int) -> Callable[[Any], Awaitable[None]]:
    """A server that answers with so many bytes, each in a packet of its own."""

    async def answers(wire: Any) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % number)
        for _ in range(number):
            wire.writer.write(b"1")
            await asyncio.sleep(0)
        await wire.reader.read()

    return answers


class Turns:
    """The turns of the loop, counted while something else runs in it."""

    taken = 0

    async def count(self) -> None:
        while True:
            self.taken += 1
            await asyncio.sleep(0)


async def answered(dial: Any, serve: Any, handler: Any) -> tuple[Response, int]:
    server = await serve(handler)
    turns = Turns()
    counting = asyncio.create_task(turns.count())
    try:
        found = await dial(server.origin, contract=SLOW, lease=120.0)
    finally:
        counting.cancel()
    assert isinstance(found, Response)
    return found, turns.taken


@pytest.mark.timeout(120)
async def test_a_small_answer_in_tiny_chunks_is_read_whole(dial: Any, serve: Any) -> None:
    found, _ = await answered(dial, serve, chunks(9000, b"1"))
    assert (found.status, found.complete, found.body) == (201, True, b"1" * 9000)


@pytest.mark.timeout(120)
async def test_others_have_their_turn_between_the_pieces(dial: Any, serve: Any) -> None:
    """All that the network has brought is handed out in one turn otherwise, 64 kB of it."""
    turns = [(await answered(dial, serve, chunks(number, b"1")))[1] for number in (2000, 4000, 8000)]
    for number, taken in zip((2000, 4000, 8000), turns, strict=True):
        assert taken >= number // answer.IN_A_TURN


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [20_000, 40_000, 80_000])
async def test_an_answer_in_more_pieces_is_given_up_and_says_nothing(dial: Any, serve: Any, number: int) -> None:
    found, _ = await answered(dial, serve, chunks(number, b"12"))
    assert (found.status, found.complete, len(found.body)) == (201, False, 2 * (answer.PIECES + 1))


@pytest.mark.timeout(120)
async def test_an_answer_in_tiny_packets_is_read_whole(dial: Any, serve: Any) -> None:
    found, _ = await answered(dial, serve, segments(3000))
    assert (found.complete, found.body) == (True, b"1" * 3000)

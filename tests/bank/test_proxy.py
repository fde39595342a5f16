"""The proxy that cuts databases and providers off: once it is away, nobody is let by.

Behind it are servers of bare TCP, because the proxy knows no HTTP.
"""

import asyncio
import socket

import pytest

from idem.testing.proxy import Proxy


@pytest.mark.parametrize("turns", range(12))
async def test_who_comes_in_as_it_goes_is_not_let_by(turns: int) -> None:
    """However far the loop had got with the connection: accepted, handed over, or calling the server."""
    heard = bytearray()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        proxy = Proxy(server.sockets[0].getsockname()[:2])
        await proxy.listen()
        with socket.create_connection((proxy.host, proxy.port)) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await proxy.stop()
            loop = asyncio.get_running_loop()
            try:
                await loop.sock_sendall(client, b"for nobody")
                assert await asyncio.wait_for(loop.sock_recv(client, 1), 5) == b""
            except ConnectionError:
                pass
    assert not heard


async def test_it_comes_back_on_the_same_port() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(5))
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(echo, "127.0.0.1", 0) as server,
        Proxy(server.sockets[0].getsockname()[:2]) as proxy,
    ):
        port = proxy.port
        await proxy.stop()
        with pytest.raises(OSError):
            await asyncio.open_connection(proxy.host, port)
        await proxy.listen()
        assert proxy.port == port
        reader, writer = await asyncio.open_connection(proxy.host, port)
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.read(5), 5) == b"hello"
        writer.close()

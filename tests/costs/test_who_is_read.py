"""The body of a request whose sender is not known is not waited for: its head alone is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest
from fix_api import PAY, Client
from starlette.exceptions import HTTPException

from idem import AsyncCall, Idem

HEAD = "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n{more}\r\n"


async def head_alone(url: str, path: str, more: str) -> bytes:
    """The status line of the answer to a head whose body never comes."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    with closing(writer):
        writer.write(HEAD.format(path=path, more=more).encode())
        return await asyncio.wait_for(reader.readline(), 10)


@pytest.mark.parametrize("more", ["", "Authorization: Bearer idem_wrong\r\n"])
async def test_the_api_answers_a_stranger_without_its_body(api: Client, more: str) -> None:
    assert b" 401 " in await head_alone(api.url, PAY, f"Idempotency-Key: k1\r\n{more}")


async def test_a_webhook_of_nobody_is_answered_without_its_body(api: Client) -> None:
    assert b" 404 " in await head_alone(api.url, "/webhooks/nobody-here", "")


async def test_an_application_that_refuses_a_tenant_is_not_asked_for_the_body() -> None:
    fastapi = pytest.importorskip("fastapi")

    def account() -> str:
        raise HTTPException(401)

    app, idem, read = fastapi.FastAPI(), Idem(tenant=account), []
    order = idem.operation("orders.create")

    @app.post("/orders")
    async def create(call: AsyncCall = fastapi.Depends(order.call_async)) -> None:  # noqa: B008
        raise AssertionError("a stranger came in")

    async def body() -> AsyncIterator[bytes]:
        read.append(True)
        yield b"{}"

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.post("/orders", content=body(), headers={"Idempotency-Key": "k1"})
    assert (answer.status_code, read) == (401, [])

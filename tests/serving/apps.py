"""Applications that servers of these tests run."""

import asyncio
from contextlib import closing


async def ok(scope: object, receive: object, send: object) -> None:
    """An application that reads the body and says ok; `/slow` waits until its client has ended."""
    assert isinstance(scope, dict) and callable(receive) and callable(send)
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/slow":
        await scope["state"]["client_ended"].wait()
    said = b"%s %s" % (scope["path"].encode(), dict(scope["headers"]).get(b"host", b""))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


async def said(port: int, raw: bytes, *, end: bool = False) -> bytes:
    """All that is answered to these bytes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(raw)
        if end:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 20)

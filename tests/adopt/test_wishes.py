"""What a client's request says: its key, its address, its body, its account. Whatever it sends, it is no 500."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from adopt.shop import define
from fastapi import Depends, FastAPI, File, Form, HTTPException, Request, Response, UploadFile
from fix_sql import async_engine_of, engine_of
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from idem import Answer, AsyncCall, Call, Idem, response


class Item(BaseModel):
    name: str
    price: float = 0


@dataclass
class Shop:
    """An application whose endpoints read their bodies in every way, and one client."""

    client: httpx.AsyncClient
    app: FastAPI
    runs: list[Any] = field(default_factory=list)

    async def send(self, path: str, key: str | None = "k1", method: str = "POST", **said: Any) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        told = await self.client.request(method, path, headers=headers | said.pop("headers", {}), **said)
        assert told.status_code < 500, told.text
        return told


@pytest.fixture
async def shop(db_url: str, idem_toml: Path) -> AsyncIterator[Shop]:
    idem, _ = define(idem_toml)
    note = idem.operation("notes.create", key_ttl="72h")
    engine = async_engine_of(db_url, "asyncpg")
    app = FastAPI()
    idem.install(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        shop = Shop(client, app)
        _endpoints(shop, note, engine)
        yield shop


def _endpoints(shop: Shop, note: Any, engine: Any) -> None:
    app = shop.app
    Noted = Annotated[AsyncCall, Depends(note.call_async)]

    async def done(call: AsyncCall, what: Any) -> Response:
        async with AsyncSession(engine) as db, db.begin():
            if await call.reserve(db):
                shop.runs.append(what)
                await call.complete(db, Answer(201, {"run": len(shop.runs)}))
        return response(await call.answer())

    @app.post("/nothing")
    @app.put("/nothing")
    @app.delete("/nothing")
    @app.patch("/nothing")
    async def nothing(call: Noted) -> Response:
        return await done(call, None)

    @app.post("/named/{name:path}")
    async def named(call: Noted, name: str) -> Response:
        return await done(call, name)

    @app.post("/model")
    async def model(call: Noted, item: Item) -> Response:
        return await done(call, item)

    @app.post("/raw")
    async def raw(call: Noted, request: Request) -> Response:
        return await done(call, await request.body())

    @app.post("/stream")
    async def stream(call: Noted, request: Request) -> Response:
        return await done(call, b"".join([part async for part in request.stream()]))

    @app.post("/form")
    async def form(call: Noted, name: Annotated[str, Form()]) -> Response:
        return await done(call, name)

    @app.post("/late-form")
    async def late_form(call: Noted, request: Request) -> Response:
        return await done(call, (await request.form())["name"])

    @app.post("/upload")
    async def upload(call: Noted, file: Annotated[UploadFile, File()], name: Annotated[str, Form()]) -> Response:
        return await done(call, (name, await file.read()))


async def test_how_a_key_may_be_written(shop: Shop) -> None:
    first = await shop.send("/nothing", "k-1")
    assert (first.status_code, first.json()) == (201, {"run": 1})
    for same in ('"k-1"', " k-1 ", '\t"k-1"'):
        again = await shop.send("/nothing", same)
        assert (again.status_code, again.content, again.headers["Idempotent-Replayed"]) == (201, first.content, "true")
    for bad, code in (
        (None, "key_missing"), ("", "key_missing"), ("  ", "key_missing"), ('""', "key_invalid"),
        ("a b", "key_invalid"), ("a,b", "key_invalid"), ('"a', "key_invalid"), ("x" * 256, "key_invalid"),
    ):  # fmt: skip
        told = await shop.send("/nothing", bad)
        assert (told.status_code, told.json()["code"]) == (400, code), bad
        assert told.headers["content-type"] == "application/problem+json"
    told = await shop.client.post("/nothing", headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "a")])
    assert (told.status_code, told.json()["code"]) == (400, "key_invalid")
    told = await shop.client.post("/nothing", headers=[("Idempotency-Key", b"k\xff")])
    assert (told.status_code, told.json()["code"]) == (400, "key_invalid")
    assert len(shop.runs) == 1


async def test_put_and_delete_have_their_address_as_key(shop: Shop) -> None:
    told = {}
    for method in ("PUT", "DELETE"):
        for query in ("", "?v=1"):
            told[method, query] = await shop.send(f"/nothing{query}", None, method)
            assert told[method, query].status_code == 201
            assert (await shop.send(f"/nothing{query}", None, method)).content == told[method, query].content
            assert (await shop.send(f"/nothing{query}", "", method)).content == told[method, query].content
    assert len(shop.runs) == len({each.content for each in told.values()}) == 4
    assert (await shop.send("/nothing", "own", "PUT")).json() == {"run": 5}
    assert (await shop.send("/nothing", None, "PATCH")).json()["code"] == "key_missing"


async def test_the_fingerprint_is_of_path_query_and_body(shop: Shop) -> None:
    assert (await shop.send("/named/a", json={"n": 1})).status_code == 201
    for other in (
        {"path": "/named/b", "json": {"n": 1}}, {"path": "/named/a?x=1", "json": {"n": 1}},
        {"path": "/named/a", "json": {"n": 2}}, {"path": "/named/a", "content": b"{'n': 1}"},
        {"path": "/named/a"}, {"path": "/raw", "json": {"n": 1}},
    ):  # fmt: skip
        told = await shop.send(**other)  # type: ignore[arg-type]
        assert (told.status_code, told.json()["code"]) == (422, "key_reused"), other
    same = await shop.send("/named/a", content=b' {"n" : 1.0}\n')
    assert (same.status_code, same.headers["Idempotent-Replayed"]) == (201, "true")
    assert len(shop.runs) == 1


@pytest.mark.parametrize("host", ["[", "a/b", "shop:x", "\xff", ""])
async def test_a_hostile_host_is_no_500_and_no_other_request(shop: Shop, host: str) -> None:
    first = await shop.send("/named/%5B%20%C3%BC%00?q=%5B", "h")
    assert first.status_code == 201
    again = await shop.client.post(
        "/named/%5B%20%C3%BC%00?q=%5B", headers=[("Idempotency-Key", "h"), ("Host", host.encode("latin-1"))]
    )
    assert again.content == first.content


async def test_a_body_that_the_endpoint_reads_as_a_model(shop: Shop) -> None:
    first = await shop.send("/model", json={"name": "a", "price": 1})
    assert (first.status_code, shop.runs) == (201, [Item(name="a", price=1)])
    assert (await shop.send("/model", content=b'{"price": 1.0, "name": "a"}',
                            headers={"content-type": "application/json"})).content == first.content  # fmt: skip
    assert (await shop.send("/model", json={"name": "b"})).status_code == 422
    assert (await shop.send("/model", content=b"{", headers={"content-type": "application/json"})).status_code == 422
    assert len(shop.runs) == 1


@pytest.mark.parametrize("path", ["/raw", "/stream"])
async def test_bytes_of_any_kind_have_a_stable_fingerprint(shop: Shop, path: str) -> None:
    bodies = (
        b"", b"\x00\xff\xfe", b"not json", b'{"a": 1, "a": 2}', b"NaN", b'{"a": Infinity}', b'{"a"', b"1e999",
        b'"\\ud800"', b'"\\u0000"', b"[" * 5000, b"123456789012345678901234567890", b'"' + b"x" * 2_000_000 + b'"',
    )  # fmt: skip
    for number, body in enumerate(bodies):
        first = await shop.send(path, f"b{number}", content=body)
        assert (first.status_code, shop.runs[-1]) == (201, body)
        again = await shop.send(path, f"b{number}", content=body)
        assert (again.content, again.headers["Idempotent-Replayed"]) == (first.content, "true")
        assert (await shop.send(path, f"b{number}", content=body + b"!")).status_code == 422
    assert len(shop.runs) == len(bodies)


@pytest.mark.parametrize("path", ["/form", "/late-form"])
async def test_a_form(shop: Shop, path: str) -> None:
    first = await shop.send(path, data={"name": "a"})
    assert (first.status_code, shop.runs) == (201, ["a"])
    assert (await shop.send(path, data={"name": "a"})).content == first.content
    assert (await shop.send(path, data={"name": "b"})).status_code == 422
    multipart = {"name": (None, "a")}
    first = await shop.send(path, "k2", files=multipart)
    assert first.status_code == 201
    # Its boundary is another one.
    assert (await shop.send(path, "k2", files=multipart)).content == first.content
    assert (await shop.send(path, "k2", files={"name": (None, "b")})).status_code == 422
    for broken in (b"", b"--x\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\n"):
        headers = {"content-type": "multipart/form-data; boundary=x"}
        await shop.send("/raw", "k3", content=broken, headers=headers)
    nul = await shop.send(path, "k4", data={"name": "\x00"})
    # As fields it cannot be stored; as bytes it can.
    assert nul.status_code == (400 if path == "/form" else 201), nul.text


async def test_an_upload(shop: Shop) -> None:
    files = {"file": ("f.bin", b"\x00\x01" * 600_000, "application/octet-stream")}
    first = await shop.send("/upload", files=files, data={"name": "a"})
    assert (first.status_code, shop.runs) == (201, [("a", files["file"][1])])
    assert (await shop.send("/upload", files=files, data={"name": "a"})).content == first.content
    other = {"file": ("f.bin", b"\x00\x02", "application/octet-stream")}
    assert (await shop.send("/upload", files=other, data={"name": "a"})).status_code == 422
    assert (await shop.send("/upload", files=files, data={"name": "b"})).status_code == 422
    assert len(shop.runs) == 1


async def _async_account(request: Request) -> str:
    return await _account(request)


async def _account(request: Request) -> str:
    return _sync_account(request)


def _sync_account(request: Request) -> str:
    said = request.headers.get("authorization")
    if said is None:
        raise HTTPException(401)
    return said


@pytest.mark.parametrize("tenant", [_async_account, _sync_account])
async def test_a_key_is_its_tenants_own(db_url: str, idem_toml: Path, tenant: Any) -> None:
    note = Idem(idem_toml, tenant=tenant).operation("notes.create", key_ttl="72h")
    engine = async_engine_of(db_url)
    blocking = engine_of(db_url)
    app = FastAPI()

    @app.post("/n")
    async def post(call: Annotated[AsyncCall, Depends(note.call_async)]) -> Response:
        async with AsyncSession(engine) as db, db.begin():
            if await call.reserve(db):
                await call.complete(db, Answer(201, {"for": call.tenant}))
        return response(await call.answer())

    @app.post("/sync")
    def post_sync(call: Annotated[Call, Depends(note.call)]) -> Response:
        with Session(blocking) as db, db.begin():
            if call.reserve(db):
                call.complete(db, Answer(201, {"for": call.tenant}))
        return response(call.answer())

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        for path, key in (("/n", "k"), ("/sync", "s")):
            for account in ("a", "b", "a"):
                told = await client.post(path, headers={"Idempotency-Key": key, "Authorization": account})
                assert told.json() == {"for": account}, told.text
            assert (await client.post(path, headers={"Idempotency-Key": key})).status_code == 401


async def test_openapi_shows_the_key(shop: Shop) -> None:
    document = (await shop.client.get("/openapi.json")).json()
    (header,) = [each for each in document["paths"]["/model"]["post"]["parameters"] if each["in"] == "header"]
    assert header["name"] == "Idempotency-Key"
    assert "255" in header["description"]
    assert "tenant" not in json.dumps(document["paths"]["/model"])

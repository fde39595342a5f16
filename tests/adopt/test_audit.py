"""`audit` finds each route that a client's retry would run twice, however the application is put together."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from adopt.shop import define
from fastapi import APIRouter, Depends, FastAPI
from flask import Blueprint, Flask
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

from idem import AsyncCall, Idem, Misuse


@pytest.fixture
def shop(idem_toml: Path) -> tuple[Idem, Any]:
    return define(idem_toml)


def found(idem: Idem, app: Any, **said: Any) -> list[str]:
    return [f"{each.method} {each.path}" for each in idem.audit(app, **said)]


def test_an_application_of_fastapi(shop: tuple[Idem, Any]) -> None:
    idem, charge = shop

    def through(call: Annotated[AsyncCall, Depends(charge.call_async)]) -> AsyncCall:
        return call

    app = FastAPI()
    inner = APIRouter(prefix="/inner")
    outer = APIRouter(prefix="/outer")
    covered = APIRouter(prefix="/covered", dependencies=[Depends(charge.call_async)])
    late = APIRouter(prefix="/late")
    mounted = FastAPI()

    @app.get("/look")
    @app.put("/put")
    @app.delete("/delete")
    async def harmless() -> None: ...

    @app.post("/bare")
    @app.patch("/bare")
    async def bare() -> None: ...

    @app.post("/good")
    async def good(call: Annotated[AsyncCall, Depends(charge.call_async)]) -> None: ...

    @app.post("/good-sync")
    def good_sync(call: Annotated[Any, Depends(charge.call)]) -> None: ...

    @app.post("/deep")
    async def deep(call: Annotated[AsyncCall, Depends(through)]) -> None: ...

    @app.post("/login")
    @idem.exempt("a session is no effect")
    async def login() -> None: ...

    @inner.post("/bare")
    @covered.post("/good")
    @late.post("/before")
    @mounted.post("/bare")
    async def another() -> None: ...

    outer.include_router(inner)
    app.include_router(outer, prefix="/v1")
    app.include_router(covered)
    app.include_router(late, dependencies=[Depends(charge.call_async)])
    app.include_router(late, prefix="/open")
    app.mount("/sub", mounted)
    app.mount("/static", Response(b""))

    @late.post("/after")
    async def after() -> None: ...

    bad = ["PATCH /bare", "POST /bare", "POST /v1/outer/inner/bare", "POST /open/late/before", "POST /sub/bare"]
    assert {*bad} <= {*found(idem, app)} <= {*bad, "POST /open/late/after"}
    assert "a retry runs it again. Depend on an operation's `call`" in str(idem.audit(app)[0])
    left = [each for each in found(idem, app) if each != "POST /bare"]
    assert found(idem, app, exempt=["POST /bare"]) == left
    assert not idem.audit(app, exempt=found(idem, app))
    with pytest.raises(Misuse, match=r"routes that are not there \(any more\): POST /gone, PUT /bare"):
        idem.audit(app, exempt=["POST /gone", "PUT /bare", "POST /bare"])
    with pytest.raises(Misuse, match="needs a reason"):
        idem.exempt(" ")


def test_an_application_of_starlette(shop: tuple[Idem, Any]) -> None:
    idem, charge = shop

    async def bare(request: Request) -> Response:
        return Response()

    @charge.covers
    async def good(request: Request) -> Response:
        return Response()

    class Class(HTTPEndpoint):
        async def post(self, request: Request) -> Response:
            return Response()

        async def get(self, request: Request) -> Response:
            return Response()

    @charge.covers
    class Covered(Class):
        pass

    async def socket(websocket: Any) -> None: ...

    app = Starlette(
        routes=[
            Route("/bare", bare, methods=["POST", "GET"]),
            Route("/look", bare),
            Route("/good", good, methods=["POST"]),
            Route("/class", Class),
            Route("/covered", Covered),
            WebSocketRoute("/socket", socket),
            Mount("/a", routes=[Mount("/b", app=Router([Route("/bare", bare, methods=["PATCH"])]))]),
            Host("api.example", app=Router([Route("/hosted", bare, methods=["POST"])])),
        ]
    )
    assert found(idem, app) == ["POST /bare", "POST /class", "PATCH /a/b/bare", "POST /hosted"]


def test_an_application_of_flask(shop: tuple[Idem, Any]) -> None:
    idem, charge = shop
    app = Flask("shop")
    part = Blueprint("part", "shop")

    @app.post("/bare/<int:order>")
    def bare(order: int) -> str:
        return ""

    @app.post("/good")
    @charge.covers
    def good() -> str:
        return ""

    @app.post("/login")
    @idem.exempt("a session is no effect")
    def login() -> str:
        return ""

    @part.post("/bare")
    def another() -> str:
        return ""

    app.register_blueprint(part, url_prefix="/part")
    assert found(idem, app) == ["POST /bare/<int:order>", "POST /part/bare"]
    assert found(idem, app, exempt=["POST /part/bare"]) == ["POST /bare/<int:order>"]


def test_what_is_no_application(shop: tuple[Idem, Any]) -> None:
    with pytest.raises(Misuse, match="dict is not an application that audit can read: FastAPI, Starlette or Flask"):
        shop[0].audit({})


def test_the_application_of_the_design_passes(shop: tuple[Idem, Any]) -> None:
    from adopt.shop import build

    idem, charge = shop
    app = build(charge, "postgresql://nobody@127.0.0.1:1/none")
    idem.install(app)
    assert not idem.audit(app)

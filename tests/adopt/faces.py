"""One endpoint in each framework, and the ways without one: a request with a key and a body, and what its client is
told. `pay` is the operation as it is defined at the moment."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import httpx
from adopt.proof_ways import django_line
from fastapi import Depends, FastAPI, Response
from fix_sql import async_engine_of, engine_of
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from idem import Answer, response
from idem.decisions import Mismatch, Replay
from idem.outcomes import Succeeded

PATH: Final = "/payments"
PARAMS: Final = {"amount": 100, "currency": "eur"}
Face: TypeAlias = Callable[[Any, str, str, bytes], Any]


async def fastapi(pay: Any, url: str, key: str, body: bytes) -> Answer:
    engine = async_engine_of(url)
    app, asked = FastAPI(), Depends(pay.call_async)

    @app.post(PATH)
    async def post(call: Any = asked) -> Response:
        async with AsyncSession(engine) as db:
            async with db.begin():
                if await call.reserve(db):
                    await call.submit(db, PARAMS)
            return response(await call.answer())

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        told = await client.post(PATH, content=body, headers={"Idempotency-Key": key})
    return Answer(told.status_code, told.content, dict(told.headers))


def flask(pay: Any, url: str, key: str, body: bytes) -> Answer:
    from flask import Flask, request

    engine = engine_of(url)
    app = Flask("shop")
    app.testing = True  # what is raised reaches the test

    @app.post(PATH)
    def post() -> Any:
        call = pay.begin(key=request.headers.get("Idempotency-Key"), tenant="acme", body=request.get_data(), path=PATH)
        with Session(engine) as db, db.begin():
            if call.reserve(db):
                call.submit(db, PARAMS)
        told = call.answer()
        return told.body, told.status, dict(told.headers)

    told = app.test_client().post(PATH, data=body, headers={"Idempotency-Key": key})
    return Answer(told.status_code, told.data, dict(told.headers))


def django(pay: Any, url: str, key: str, body: bytes) -> Answer:
    with django_line(url, "READ COMMITTED") as (db, atomic):
        from django.http import HttpResponse
        from django.test import RequestFactory

        def post(request: Any) -> Any:
            key = request.headers.get("Idempotency-Key")
            call = pay.begin(key=key, tenant="acme", body=request.body, path=request.path)
            with atomic():
                if call.reserve(db):
                    call.submit(db, PARAMS)
            told = call.answer()
            return HttpResponse(told.body, status=told.status, headers=dict(told.headers))

        request = RequestFactory().post(PATH, body, content_type="application/json", headers={"Idempotency-Key": key})
        told = post(request)
    return Answer(told.status_code, told.content, dict(told.headers))


def inline(pay: Any, url: str, key: str, body: bytes) -> Answer:
    with pay.inline(PARAMS, key=key, tenant="acme", body=_value(body), path=PATH) as run:
        if run.mine:
            run.complete(Succeeded("pay_1"))
    answer: Answer = run.answer()
    return answer


def accept(pay: Any, url: str, key: str, body: bytes) -> Answer:
    """Without a client: what its own code would tell."""
    with Session(engine_of(url)) as db, db.begin():
        decided = pay.accept(db, _value(body), key=key, tenant="acme")
    match decided:
        case Replay(answer=answer):
            return Answer(answer.status, answer.body, {"Idempotent-Replayed": "true"})
        case Mismatch():
            return Answer(422, b"")
        case _:
            return Answer(202, b"")


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


FACES: Final[dict[str, Face]] = {
    "fastapi": fastapi, "flask": flask, "django": django, "inline": inline, "accept": accept,
}  # fmt: skip

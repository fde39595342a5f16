"""The HTTP API as one ASGI application, and the tasks that run beside it."""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from idem.outbox.api import openapi, responses
from idem.outbox.api.client_wait import ClientGone
from idem.outbox.api.endpoints import Service
from idem.outbox.api.store import Store
from idem.outbox.api.waiting import Waiters
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.database.notify import Nudge
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.problem_catalogue import PROBLEMS
from idem.outbox.http_server import descriptors, problems, routing
from idem.outbox.http_server.problems import JSON, ProblemError
from idem.outbox.http_server.routing import Endpoint, Route, Routes
from idem.outbox.http_server.side_server import metrics_page
from idem.outbox.observe import telemetry
from idem.outbox.tenants.authentication import Callers
from idem.outbox.tenants.limits import TenantLimits
from idem.outbox.tenants.shares import UnderWay
from idem.outbox.values import canonical
from idem.outbox.values.json_bytes import encoded

INTENTS: Final = re.compile(r"/v1/intents/([^/]+)")


class Api:
    """One process of the HTTP API over a pool of connections; `more`: routes of other packages, e.g. of webhooks.

    `reserved` descriptors belong to others of this process.

    `app` is the ASGI application. It answers without the database too, with 503; `run` serves those who wait, and
    counts what tenants use.
    """

    def __init__(
        self,
        database: Database,
        catalogue: Catalogue,
        settings: ApiSettings,
        *,
        nudge: Nudge | None = None,
        more: Sequence[Route] = (),
        reserved: int = 0,
    ) -> None:
        self._store = Store(database, settings.timeout)
        self._waiters = Waiters(database, settings.poll)
        self._limits = TenantLimits(database, settings)
        self._draining = False
        self._document = encoded(openapi.document(catalogue, settings))
        callers = Callers(database, settings.token_cache)
        # Half of the connections: a request that waits holds one.
        under_way = UnderWay(descriptors.room(settings.pool + reserved) // 2)
        self._service = service = Service(
            catalogue, settings, self._store, callers, self._limits, self._waiters, under_way, nudge
        )
        self.app = Routes(
            [
                route("/v1/intents", GET=service.list),
                route("/v1/intents/{operation}", "/v1/intents/{intent}", POST=service.ask, GET=service.show,
                      DELETE=service.cancel),
                route("/healthz", GET=alive),
                route("/readyz", GET=self._ready),
                *([route("/metrics", GET=metrics_page)] if settings.metrics else []),
                *([route("/openapi.json", GET=self._openapi)] if settings.openapi else []),
                route("/problems/{code}", GET=_problem),
                *more,
            ],
            _unrouted,
        )  # fmt: skip

    @property
    def waiting(self) -> int:
        """How many requests wait for an end now."""
        return len(self._waiters)

    def drain(self) -> None:
        """Say that no new requests should come; those that wait are answered now."""
        self._draining = True
        self._waiters.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs beside the requests until `stop` is set and every request is answered."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._waiters.run(stop))
                group.create_task(self._waiters.wake_at(stop))
                group.create_task(self._limits.run(stop))
        finally:
            await self._store.close()

    async def _ready(self, _: Request) -> Response:
        # Of this process alone: a provider's outage, or the database's, is the same for every other process, and to
        # take them all out of service would turn a 503 that says what to do into a refused connection.
        return Response(encoded({"ready": not self._draining}), 503 if self._draining else 200, media_type=JSON)

    async def _openapi(self, _: Request) -> Response:
        return Response(self._document, media_type=JSON)


def route(path: str, /, *alias: str, **methods: Endpoint) -> Route:
    """A route whose every answer is counted and whose every error is a problem; `methods` by their names.

    The `alias` is the same path with the other name of its parameter: who asks by another method means another thing.
    """
    parameter = path.partition("{")[2].rstrip("}")
    aliases = [each.partition("{")[2].rstrip("}") for each in alias]
    labels = {method: alias[0] if alias and method != "POST" else path for method in methods}

    async def endpoint(request: Request) -> Response:
        began = time.perf_counter()
        method = "GET" if request.method == "HEAD" else request.method
        for each in aliases:
            request.path_params[each] = request.path_params[parameter]
        try:
            if any(canonical.UNSTORABLE.search(each) for each in request.path_params.values()):
                raise ProblemError("not_found", "The path contains a character that no name contains.")
            response = await methods[method](request)
        except ProblemError as error:
            telemetry.refused_request(error.problem.code)
            response = responses.response(error.answer())
        except (ClientGone, ClientDisconnect):
            response = Response(status_code=400)  # nobody is there to read it
        except Exception as error:
            telemetry.broken("api", error, f"{method} {labels[method]}")
            response = _internal_error()
        response.headers.setdefault("Cache-Control", "no-store")
        telemetry.http_answer(labels[method], method, response.status_code, time.perf_counter() - began)
        return response

    return routing.route(path, endpoint, *methods)


async def _unrouted(request: Request, error: HTTPException) -> Response:
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    telemetry.refused_request(code)
    headers = dict(error.headers or {})
    if code == "method_not_allowed" and (found := INTENTS.fullmatch(request.url.path)):
        # One path has two meanings: an operation is asked, an intent is looked at.
        headers["Allow"] = "DELETE, GET, HEAD" if _is_id(found[1]) else "POST"
    problem = ProblemError(code, f"{PROBLEMS[code].title}.", headers=headers).answer()
    return responses.response(problem)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _internal_error() -> Response:
    problem = ProblemError(
        "internal_error", "idem failed unexpectedly. Send the same request again with the same key: it happens at "
                          "most once.", retry_after=1,
    ).answer()  # fmt: skip
    return responses.response(problem)


async def alive(_: Request) -> Response:
    """`GET /healthz`: this process answers."""
    return Response(encoded({"alive": True}), media_type=JSON)


async def _problem(request: Request) -> Response:
    found = PROBLEMS.get(request.path_params["code"])
    if found is None:
        raise ProblemError("not_found", "No problem has this code.")
    return responses.response(problems.page(found))

"""The endpoint for providers' events over HTTP. Nothing that a sender can do is answered with a 500.

413 and 415 come before verification, 401 for what fails it. 400: the body does not arrive in time, or is signed and
unreadable. 404: another address. 503: no secret is configured, the database cannot answer, or too many bodies are on
their way. 2xx comes after the commit, for every event that is genuine: a provider switches off an endpoint that refuses
some.
"""

import time
from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from idem.outbox.api import reading
from idem.outbox.api.app import alive, route
from idem.outbox.api.responses import response
from idem.outbox.api.store import Store
from idem.outbox.config.http_settings import EndpointSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.webhook import WebhookReply
from idem.outbox.http_server.body_memory import BodyMemory, Reservation
from idem.outbox.http_server.problems import JSON, ProblemError
from idem.outbox.http_server.routing import Route, Routes
from idem.outbox.observe import telemetry
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.values.errors import WebhookRefused
from idem.outbox.values.json_bytes import encoded
from idem.reconciler.webhooks import ingest
from idem.reconciler.webhooks.check_queue import checked
from idem.reconciler.webhooks.delivery import Delivery, secrets_of

CODES: Final = {
    "unknown_endpoint": "not_found",
    "not_configured": "webhook_not_configured",
    "unreadable": "webhook_unreadable",
}
"""The problem for the reason of a refusal; every other reason is `webhook_unverified`."""

CONFIGURED_LATER: Final = 300.0
"""Seconds after which a provider may try an endpoint again that has no secret yet."""


def routes(
    database: Database, catalogue: Catalogue, settings: EndpointSettings | None = None, *, prefix: str = "/webhooks"
) -> list[Route]:
    """The routes of the events, to be mounted: `/webhooks/{provider}` tries the secrets of all its accounts."""
    context = _EndpointContext(database, catalogue, settings or EndpointSettings())
    return [
        route(f"{prefix}/{{provider}}", POST=context.take),
        route(f"{prefix}/{{provider}}/{{account}}", POST=context.take),
    ]


def application(database: Database, catalogue: Catalogue, settings: EndpointSettings) -> Routes:
    """The routes as an application of their own, with `/healthz`."""
    return Routes([*routes(database, catalogue, settings), route("/healthz", GET=alive)], unrouted)


class _EndpointContext:
    """Who takes deliveries in one process."""

    def __init__(self, database: Database, catalogue: Catalogue, settings: EndpointSettings) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._store = Store(database, settings.timeout)
        self._renderer = Renderer()
        self._memory = BodyMemory(settings.max_unverified)

    async def take(self, request: Request) -> Response:
        """One delivery. Raises ProblemError."""
        received = time.time()
        provider, account = request.path_params["provider"], request.path_params.get("account")
        # A metric's label is never a word of the sender's.
        named = provider if provider in self._catalogue.providers else "unknown"
        try:
            secrets_of(self._catalogue, provider, account)
            with self._memory.held() as held:
                body = await self._body(request, held)
                deliveries = await checked(
                    self._catalogue, provider, account, request.headers.raw, body, received, hold=held.add
                )
        except WebhookRefused as error:
            telemetry.webhook_refused(named, error.reason)
            raise _problem(error) from None
        except ProblemError as error:
            telemetry.webhook_refused(named, error.problem.code)
            raise
        try:
            fates = await ingest.receive_all(self._store.run, self._catalogue, self._renderer, deliveries)
        except ProblemError as error:
            telemetry.webhook_refused(named, error.problem.code)
            raise
        return self._reply(provider, deliveries, fates)

    def _reply(self, provider: str, deliveries: Sequence[Delivery], fates: Sequence[str]) -> Response:
        webhook = self._catalogue.providers[provider].webhook
        wanted = WebhookReply() if webhook is None else webhook.reply
        if wanted.body is not None:
            return Response(wanted.body, wanted.status, media_type=wanted.media_type)
        results = [{"event": delivery.event_id, "fate": fate} for delivery, fate in zip(deliveries, fates, strict=True)]
        return Response(
            encoded(results[0] if len(results) == 1 else {"events": results}), wanted.status, media_type=JSON
        )

    async def _body(self, request: Request, held: Reservation) -> bytes:
        if reading.is_form(request.headers.get("content-type", "")):
            reading.check_coding(request)
        else:
            reading.check_media_type(request)
        late = ProblemError("webhook_unreadable", "The body did not arrive in time.", headers={"Connection": "close"})
        return await reading.body(request, self._settings.max_body, self._settings.read_timeout, late, held=held)


def _problem(error: WebhookRefused) -> ProblemError:
    later = CONFIGURED_LATER if error.reason == "not_configured" else None
    return ProblemError(CODES.get(error.reason, "webhook_unverified"), reading.sentence(error), retry_after=later)


async def unrouted(_: Request, error: HTTPException) -> Response:
    """The answer to a request to any other address."""
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    problem = ProblemError(code, "Send events by POST to /webhooks/{provider}.", headers=error.headers).answer()
    return response(problem)

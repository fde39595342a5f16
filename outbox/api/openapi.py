"""The API's own description (OpenAPI 3.1), made from the configured operations.

A path for each operation, so that its body is described by its own JSON Schema.
"""

from collections.abc import Mapping
from typing import Any, Final

from idem.outbox.api.examples import example
from idem.outbox.api.intents import STATES
from idem.outbox.api.schemas import SCHEMAS
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.operation import ANSWER_VERSION, OperationSpec
from idem.outbox.domain.problem_catalogue import MEDIA_TYPE, PROBLEMS

EVERYWHERE: Final = ("store_unavailable",)
WITH_TOKEN: Final = ("unauthorized", "too_many_requests", *EVERYWHERE)
ASKING: Final = (
    "key_missing", "key_invalid", "unsupported_media_type", "body_too_large", "body_invalid", "params_invalid",
    "key_reused", "in_progress", "outcome_unknown", "needs_operator", "key_expired", "not_executed", "too_many_keys",
    "cancelled", *WITH_TOKEN,
)  # fmt: skip

TEXT: Final = {"type": "string"}
ID: Final = TEXT | {"format": "uuid"}
MOMENT: Final = TEXT | {"format": "date-time"}
EXAMPLE_INTENT: Final = "0193b6a0-0000-7000-8000-000000000000"
EXAMPLE_KEY: Final = "8e03978e-40d5-43dd-bc93-6894a57f9324"

HEADERS: Final[Mapping[str, str]] = {
    "Location": "Where to read the intent.",
    "Retry-After": "Seconds to wait before sending the same request again.",
    "Preference-Applied": "`wait=N`, if the request waited.",
    "Idempotent-Replayed": "`true`: this is the stored answer to an earlier request with this key.",
    "Idempotency-Key-Completed": "When the first request was settled.",
    "Idempotency-Key-Expires": "Until when the answer is kept.",
    "Idempotency-Key-Expired": "`true`: the key was used again after it expired.",
    "Content-Location": "Where to read the intent.",
    "Idempotent-Answer-Version": "The version of the operation's answer with which this answer was stored.",
}

HEADERS_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("in_progress", "outcome_unknown", "needs_operator", "not_executed", "too_many_requests", "too_many_keys",
         "store_unavailable"),
        "Retry-After",
    ),
    "key_expired": "Idempotency-Key-Expired",
}  # fmt: skip
"""The header that a problem comes with."""


APPROVED: Final = (
    "The status `waiting_for_approval` says that a person must approve it first. If that person says no, the final "
    "answer says so."
)


def document(catalogue: Catalogue, settings: ApiSettings) -> dict[str, Any]:
    """The whole document, as JSON values."""
    operations = [each for _, each in sorted(catalogue.operations.items()) if each.kind == "provider"]
    unused: set[str] = set() if any(each.answer_version is not None for each in operations) else {ANSWER_VERSION}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "idem",
            "version": "1",
            "description": "Runs a side effect in another system once. `Idempotency-Key` follows "
            "draft-ietf-httpapi-idempotency-key-header-07 (expired): the quoted and the bare spelling "
            "are one key. Errors are problems of RFC 9457; each `type` has a page.",
        },
        "security": [{"token": []}],
        "paths": {
            **{f"/v1/intents/{operation.name}": {"post": _ask(operation, settings)} for operation in operations},
            "/v1/intents": {"get": _list(catalogue)},
            "/v1/intents/{intent}": {
                "parameters": [_parameter("path", "intent", ID, required=True, example=EXAMPLE_INTENT)],
                "get": _show(),
                "delete": _cancel(),
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": SCHEMAS,
            "headers": {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in HEADERS.items()
                if name not in unused
            },
        },
    }


def _ask(operation: OperationSpec, settings: ApiSettings) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": _schema(operation)}
    if (found := example(operation)) is not None:
        body["example"] = found
    asks = operation.approve is not None and operation.rejected is None
    responses = _problems((*ASKING, *(("rejected_by_operator",) if asks else ())), settings)
    for status in operation.answer_statuses:
        known = responses.setdefault(str(status), {"description": "", "content": {}})
        known["description"] = f"The final answer, stored: {known['description']}".rstrip(": ")
        # What a refusal is told as is a problem, unless the operation says otherwise.
        known["content"].setdefault("application/json", {})
        if status >= 400:
            known["content"].setdefault(MEDIA_TYPE, {})
        known["headers"] = known.get("headers", {}) | _headers(
            "Idempotent-Replayed",
            "Idempotency-Key-Completed",
            "Idempotency-Key-Expires",
            "Content-Location",
            *([ANSWER_VERSION] if operation.answer_version is not None else []),
        )
    responses["202"] = {
        "description": "idem has stored the request and will run it. `interim` is present while the provider is still "
        "working." + (" " + APPROVED if operation.approve is not None else ""),
        "headers": _headers("Location", "Retry-After", "Preference-Applied"),
        "links": {
            name: {"operationId": f"{name}Intent", "parameters": {"intent": "$response.body#/intent"}}
            for name in ("show", "cancel")
        },
        "content": {
            "application/json": {
                "schema": _ref("Accepted"),
                "example": {
                    "intent": EXAMPLE_INTENT,
                    "operation": operation.name,
                    "state": "in_progress",
                    "status": "awaiting_provider",
                    "interim": {"reference": "pay_1", "status": "processing"},
                },
            }
        },
    }
    return {
        "operationId": operation.name,
        "summary": f"Request {operation.name}",
        "parameters": [
            _parameter(
                "header", "Idempotency-Key",
                TEXT | {"minLength": settings.min_key_length, "maxLength": 255, "pattern": "^[!#-+\\--:<-\\[\\]-~]+$"},
                "A new key for each request, the same key for its retries.", required=True, example=EXAMPLE_KEY,
            ),
            _parameter(
                "header", "Prefer", TEXT,
                f"`wait=N`: wait up to N seconds for the final answer; at most {settings.wait_cap:g}.",
                example="wait=10",
            ),
        ],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": dict(sorted(responses.items())),
    }  # fmt: skip


def _show() -> dict[str, Any]:
    return {
        "operationId": "showIntent",
        "summary": "State, answer and timeline of one intent",
        "responses": {
            "200": _json("What idem knows about it.", "Intent"),
            **_problems(("not_found", *WITH_TOKEN)),
        },
    }


def _list(catalogue: Catalogue) -> dict[str, Any]:
    parameters: list[tuple[str, dict[str, Any], str]] = [
        ("state", TEXT | {"enum": STATES}, "Only intents in this state."),
        ("operation", TEXT | {"enum": sorted(catalogue.operations)}, "Only intents of this operation."),
        ("key", TEXT, "Only the intent with this idempotency key; needs `operation`."),
        ("provider_key", ID, "Only the intent whose call carries this provider key."),
        ("reference", TEXT, "Only intents with this reference of the provider."),
        ("label", TEXT, "Only intents with this label."),
        ("since", MOMENT, "Only intents accepted at this time or later."),
        ("until", MOMENT, "Only intents accepted before this time."),
        (
            "before",
            ID,
            "Only intents older than this one: `next` of the previous page.",
        ),
        ("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Maximum number of intents."),
    ]
    return {
        "operationId": "listIntents",
        "summary": "Your intents, newest first",
        "parameters": [_parameter("query", name, schema, text) for name, schema, text in parameters],
        "responses": {
            "200": _json(
                "A page; `next` is null on the last one. With `reference` or `label`, a page that is not the last may "
                "hold fewer than `limit` intents, or none.",
                "Page",
            ),
            **_problems(("query_invalid", *WITH_TOKEN)),
        },
    }


def _cancel() -> dict[str, Any]:
    return {
        "operationId": "cancelIntent",
        "summary": "Cancel a request that was certainly not sent",
        "responses": {
            "200": _json("The request is cancelled, now or earlier.", "Cancelled"),
            **_problems(("not_found", "not_cancellable", *WITH_TOKEN)),
        },
    }


def _parameter(where: str, name: str, schema: Mapping[str, Any], text: str = "", **more: Any) -> dict[str, Any]:
    described = {"description": text} if text else {}
    return {"name": name, "in": where, "schema": schema, **described, **more}


def _json(text: str, schema: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _problems(codes: tuple[str, ...], settings: ApiSettings | None = None) -> dict[str, Any]:
    """Answers by status; those of one status share an entry, with an example each."""
    found: dict[str, Any] = {}
    for code in codes:
        problem = PROBLEMS[code]
        strict = code == "key_reused" and settings is not None and settings.profile == "stripe"
        status = 400 if strict else problem.status
        known = found.setdefault(
            str(status),
            {
                "description": "",
                "content": {MEDIA_TYPE: {"schema": _ref("Problem"), "examples": {}}},
            },
        )
        known["description"] = "; ".join(filter(None, [known["description"], problem.title]))
        if code in HEADERS_OF:
            known["headers"] = known.get("headers", {}) | _headers(HEADERS_OF[code])
        known["content"][MEDIA_TYPE]["examples"][code] = {
            "value": {
                "type": problem.type,
                "title": problem.title,
                "status": status,
                "detail": problem.meaning,
                "code": code,
            }
        }
    return found


def _schema(operation: OperationSpec) -> dict[str, Any]:
    schema = dict(operation.schema)
    # Its own `#/…` references mean itself, not this document.
    return {"$id": f"urn:idem:operation:{operation.name}", **schema} if "$ref" in str(schema) else schema

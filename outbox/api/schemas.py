"""What the API answers, as types, and their JSON Schemas for its own description."""

from datetime import datetime
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,  # pydantic refuses that of `typing` before Python 3.12
)
from uuid import UUID

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from idem.outbox.api.intents import STATES
from idem.outbox.domain.problem_catalogue import PROBLEMS

Interim = Annotated[
    Any,
    Field(
        description="Present while the provider is still working: what the operation shows its client, e.g. the "
        "address at which a customer must act; by default the provider's reference and its word for the "
        "state. A newer one replaces it, and the final answer removes it.",
        examples=[{"reference": "pay_1", "status": "requires_action"}],
    ),
]


class InvalidParam(TypedDict):
    """One mistake in the params: where, and what is wrong."""

    pointer: str
    detail: str


class ProblemBody(TypedDict):
    """A problem of RFC 9457."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri-reference"})]
    title: str
    status: int
    detail: str
    code: Annotated[str, Field(json_schema_extra={"enum": [*sorted(PROBLEMS)]})]
    intent: NotRequired[UUID]
    errors: NotRequired[list[InvalidParam]]


class AcceptedBody(TypedDict):
    """A request that is stored and has no final answer yet."""

    intent: UUID
    operation: str
    state: Literal["in_progress"]
    status: str
    interim: NotRequired[Interim]


class StepBody(TypedDict):
    """A step of an intent whose operation has several calls."""

    name: str
    state: Literal["ended", "open", "planned"]
    outcome: Literal["succeeded", "refused", "skipped", "cancelled"] | None
    provider_reference: str | None
    undoes: Annotated[str | None, Field(description="Of a step that undoes an earlier one: the name of that one.")]
    ended_at: datetime | None


class IntentBody(TypedDict):
    """What idem knows about an intent; a list leaves the answer, the steps and the timeline out."""

    id: UUID
    operation: str
    key: str
    state: Annotated[str, Field(json_schema_extra={"enum": STATES})]
    outcome: NotRequired[str | None]
    status: NotRequired[str | None]
    step: NotRequired[Annotated[str, Field(description="Of an operation of several calls: the step that is open.")]]
    label: NotRequired[str | None]
    provider_reference: NotRequired[str | None]
    created_at: datetime
    settled_at: NotRequired[datetime | None]
    expires_at: NotRequired[datetime | None]
    answer: NotRequired[dict[str, Any] | None]
    interim: NotRequired[Interim]
    steps: NotRequired[
        Annotated[list[StepBody], Field(description="Of an operation of several calls, each with what it came to.")]
    ]
    timeline: NotRequired[list[dict[str, Any]]]


class PageBody(TypedDict):
    """A page of intents; `next` is null on the last one."""

    intents: list[IntentBody]
    next: str | None


class CancelledBody(TypedDict):
    """A request that was cancelled, now or earlier."""

    id: str
    state: Literal["completed"]
    outcome: Literal["cancelled"]


# In the description a body has the name of what it shows.
for _body in (ProblemBody, AcceptedBody, StepBody, IntentBody, PageBody, CancelledBody):
    _body.__name__ = _body.__qualname__ = _body.__name__.removesuffix("Body")
_, _schemas = TypeAdapter.json_schemas(
    [(each, "serialization", TypeAdapter(each)) for each in (ProblemBody, AcceptedBody, PageBody, CancelledBody)],
    ref_template="#/components/schemas/{model}",
)
SCHEMAS: Final[dict[str, Any]] = _schemas["$defs"]
"""The schemas by name, as they stand under `components` of the description."""

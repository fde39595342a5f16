"""`cancel_by_key` of a provider in idem.toml: how it is told to void whatever was sent under a key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.operation_settings import plain_json
from idem.outbox.config.outcome_settings import Pointer, conditions, tokens
from idem.outbox.config.page_settings import address
from idem.outbox.config.section import Section
from idem.outbox.domain.contract import CancelRule
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.cancels import Cancel
from idem.outbox.providers.template import KEY, Template, compile_text
from idem.outbox.values import json_pointer

OURS = frozenset({"key"})


class CancelSettings(Section):
    """A request that makes "not executed" true. It burns the key: what is sent again gets a new one."""

    method: Literal["POST", "PUT", "PATCH", "DELETE"] = Field(default="POST", description="HTTP method; default POST.")
    path: str = Field(description="Path and query, as /v2/payments/cancel; {idem.key} is here or in the body.")
    body: dict[str, Any] | None = Field(
        default=None, description='Body, as {idempotency_key = "{idem.key}"}; default none.'
    )
    tombstones: bool = Field(
        default=False,
        description="Whether it also stops a request that arrives after it; default false: then it counts only when "
        "nothing can be under way any more.",
    )
    done: int | str | list[int | str] = Field(
        default="2xx",
        description='HTTP statuses that say that nothing stands under the key; default "2xx". A 4xx must be in the '
        "error shape or show what `when` demands.",
    )
    when: dict[str, Any] = Field(
        default_factory=dict,
        description="What members of the body must be for it to be done: JSON pointer to a value, a list of values, or "
        "{exists = true}; default nothing.",
    )
    object: Pointer = Field(
        default="",
        description="JSON pointer to the object in an answer that says it was too late; default the whole answer.",
    )
    match: Pointer | None = Field(
        default=None, description="JSON pointer, inside the object, to what must equal our key; default none."
    )

    @field_validator("done", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if not outcome_rules.statuses(value):
            raise ValueError("an empty list is no status, and no cancel would ever be done: name one, or leave it out")
        return value

    @model_validator(mode="after")
    def _names_the_key(self) -> CancelSettings:
        words = address("path", self.path, OURS, "{idem.key}")
        conditions(self.when)
        try:
            holes = Template.compile(plain_json(self.body), OURS).holes()
        except ValueError as error:
            raise ValueError(f"body: {error}") from None
        if any(hole.path != KEY or hole.optional for hole in holes):
            raise ValueError("body: a cancel knows no params, only {idem.key}")
        if not words and not holes:
            raise ValueError("it names no call: put {idem.key} into the path or the body")
        return self

    def rule(self) -> CancelRule:
        return CancelRule(self.tombstones)

    def build(self) -> Cancel:
        return Cancel(
            path=compile_text(self.path, OURS),
            body=None if self.body is None else Template.compile(self.body, OURS),
            method=self.method,
            done=outcome_rules.statuses(self.done),
            when=conditions(self.when),
            object=json_pointer.parse(self.object),
            match=tokens(self.match),
        )

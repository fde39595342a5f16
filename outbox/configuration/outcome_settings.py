"""`outcome`, `object` and `errors` of a provider in idem.toml: how its answers are read."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from idem.outbox import pointer
from idem.outbox.pointer import Tokens
from idem.outbox.providers import rules
from idem.outbox.providers.defaults import ErrorShape
from idem.outbox.providers.rules import Condition, HeaderCondition, Places, Rule, Says
from idem.outbox.section import Section


def _pointer(text: str) -> str:
    pointer.parse(text)
    return text


Pointer: TypeAlias = Annotated[str, AfterValidator(_pointer)]


def tokens(text: str | None) -> Tokens | None:
    """The tokens of a pointer that may be missing."""
    return None if text is None else pointer.parse(text)


class ErrorSettings(Section):
    """How the provider's own errors look."""

    shape: Pointer | None = Field(
        default=None,
        description='JSON pointer that every error of the provider itself has, as "/error/code"; default none. It '
        "tells the provider's 404 from a proxy's.",
    )
    code: Pointer | None = Field(default=None, description="JSON pointer to the error code; default none.")
    message: Pointer | None = Field(default=None, description="JSON pointer to the text for people; default none.")
    reference: Pointer | None = Field(
        default=None,
        description="JSON pointer to the reference of a refused object, where errors have one; default none.",
    )

    def build(self) -> ErrorShape:
        return ErrorShape(tokens(self.shape), tokens(self.code), tokens(self.message), tokens(self.reference))


class ObjectSettings(Section):
    """Where the object's values are in an answer."""

    reference: Pointer | None = Field(
        default=None,
        description='JSON pointer to the provider\'s reference, as "/id"; default none. An answer without it is '
        "no proof.",
    )
    status: Pointer | None = Field(
        default=None, description='JSON pointer to the provider\'s own word for the state, as "/status"; default none.'
    )
    fields: dict[str, Pointer] = Field(
        default_factory=dict, description="Further values for the answer, name to JSON pointer; default none."
    )


class RuleSettings(Section):
    """One outcome rule; the first that matches an answer decides."""

    says: Says = Field(
        description='What the answer means: "final", "answer", "pending", "refused", "not_executed:request", '
        '"not_executed:config", "not_executed:throttled", "ambiguous" or "absent" (look-ups only).'
    )
    status: int | str | list[int | str] | None = Field(
        default=None,
        description='HTTP statuses: 402, "2xx", "400-422" or a list; default "2xx", for refused "2xx" and "4xx". The '
        "others must say it.",
    )
    when: dict[str, Any] = Field(
        default_factory=dict,
        description="What members of the body must be: JSON pointer to a value, a list of values, or {exists = true}.",
    )
    headers: dict[str, Any] = Field(
        default_factory=dict, description="The same for headers, by name; values are compared without case."
    )
    object: ObjectSettings = Field(
        default=ObjectSettings(),
        description="Where the object's values are, if not where the provider's `object` says.",
    )

    @field_validator("status", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if value is not None:
            rules.statuses(value)
        return value

    @field_validator("when", "headers")
    @classmethod
    def _are_conditions(cls, value: dict[str, Any]) -> dict[str, Any]:
        for wanted in value.values():
            _wanted(wanted)
        return value

    @model_validator(mode="after")
    def _is_said(self) -> RuleSettings:
        for at in self.when:
            pointer.parse(at)
        if self.status is None and self.says not in rules.PROOFS:
            raise ValueError(f"a rule that says {self.says} must name its HTTP status")
        return self

    def build(self, default: ObjectSettings) -> Rule:
        status = self.status
        if status is None:
            status = ["2xx", "4xx"] if self.says is Says.REFUSED else "2xx"
        return Rule(
            says=self.says,
            status=rules.statuses(status),
            body=tuple(Condition(pointer.parse(at), *_wanted(wanted)) for at, wanted in self.when.items()),
            headers=tuple(
                HeaderCondition(name.lower(), tuple(str(value) for value in values), exists)
                for name, (values, exists) in ((name, _wanted(wanted)) for name, wanted in self.headers.items())
            ),
            places=Places(
                reference=tokens(self.object.reference if self.object.reference is not None else default.reference),
                status=tokens(self.object.status if self.object.status is not None else default.status),
                fields={name: pointer.parse(at) for name, at in {**default.fields, **self.object.fields}.items()},
            ),
        )


def _wanted(value: Any) -> tuple[tuple[Any, ...], bool]:
    """The values of a condition, and whether the member must exist. Raises ValueError."""
    if isinstance(value, dict):
        if set(value) != {"exists"} or not isinstance(value["exists"], bool):
            raise ValueError("a condition is a value, a list of values, or {exists = true}")
        return (), value["exists"]
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values or not all(isinstance(item, str | int | float | bool) for item in values):
        raise ValueError("a condition is a value, a list of values, or {exists = true}")
    return values, True

"""`errors` of a provider in idem.toml: how its own errors look, and what their codes mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from idem.outbox.config.outcome_settings import PlaceSettings, Pointer, said_once, spellings, tokens
from idem.outbox.config.section import Section
from idem.outbox.providers.default_rules import ErrorShape
from idem.outbox.providers.outcome_rules import Condition, Rule, Says
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import Tokens

STATUSES: Final = frozenset(range(400, 600))


def _parsed(pointers: str | list[str] | None) -> str | list[str] | None:
    for text in pointers if isinstance(pointers, list) else [pointers]:
        tokens(text)
    return pointers


Pointers: TypeAlias = Annotated[str | list[str] | None, AfterValidator(_parsed)]


class ErrorSettings(Section):
    """How the provider's own errors look."""

    shape: Pointers = Field(
        default=None,
        description='JSON pointer that every error of the provider itself has, as "/error/code", or a list where they '
        "look in several ways; default none. It tells the provider's 404 from a proxy's.",
    )
    code: Pointers = Field(
        default=None,
        description="JSON pointer to the error code, or a list of which the first that is there counts; default none.",
    )
    message: Pointers = Field(
        default=None, description="JSON pointer to the text for people, or such a list; default none."
    )
    reference: Pointer | None = Field(
        default=None,
        description="JSON pointer to the reference of a refused object, where errors have one; default none.",
    )
    codes: dict[Says, list[int | str]] = Field(
        default_factory=dict,
        description="What the codes of a 4xx or 5xx in the error shape mean, by the words of a rule's `says`: "
        '{ refused = ["card_declined"] }. Read after the rules of `outcome`; default none.',
    )

    @model_validator(mode="after")
    def _are_codes(self) -> ErrorSettings:
        if self.codes and not (given(self.shape) and given(self.code)):
            raise ValueError("codes are read at `code`, in errors that have the `shape`: say both")
        if Says.LATER_FACT in self.codes:
            raise ValueError("an error is no later_fact, which only events tell")
        said_once("code", self.codes)
        return self

    def build(self) -> ErrorShape:
        (shape, *shapes), (code, *codes), (message, *messages) = (
            given(each) or (None,) for each in (self.shape, self.code, self.message)
        )
        return ErrorShape(
            shape,
            code,
            message,
            tokens(self.reference),
            more_shapes=_present(shapes),
            more_codes=_present(codes),
            more_messages=_present(messages),
        )

    def rules(self, default: PlaceSettings) -> tuple[Rule, ...]:
        """The codes as rules: one for each word, shape and place of the code."""
        places = default.places()
        if self.reference is not None:
            places = replace(places, reference=json_pointer.parse(self.reference))
        at = given(self.code)
        return tuple(
            Rule(
                says,
                STATUSES,
                (
                    Condition(shape),
                    *(Condition(earlier, exists=False) for earlier in at[:index]),
                    Condition(code, spellings(codes)),
                ),
                places=places,
            )
            for says, codes in self.codes.items()
            if codes
            for shape in given(self.shape)
            for index, code in enumerate(at)
        )


def given(pointers: str | list[str] | None) -> tuple[Tokens, ...]:
    """The tokens of each pointer."""
    each = pointers if isinstance(pointers, list) else [pointers]
    return _present(tokens(text) for text in each)


def _present(found: Iterable[Tokens | None]) -> tuple[Tokens, ...]:
    return tuple(each for each in found if each is not None)

"""`key` and `mark` of a provider in idem.toml: what every request carries of ours."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from idem.outbox.config.outcome_settings import Pointer, tokens
from idem.outbox.config.section import Duration, Section
from idem.outbox.domain.contract import Replay
from idem.outbox.providers.deployment_tag import Mark
from idem.outbox.providers.path_patterns import is_pattern
from idem.outbox.values import json_pointer


class KeySettings(Section):
    """How the provider key travels, and what the provider promises about it."""

    carrier: Literal["header", "body", "none"] = Field(
        default="none",
        description='What carries the provider key: "header", "body" or "none" (default: nothing is promised).',
    )
    name: str | None = Field(default=None, description="Name of the header or body member, as Idempotency-Key.")
    replay: Replay = Field(
        default="none",
        description='What a second send under the same key gets: "stored" (the first answer), "current" (the object as '
        'it is now), "success_only" (2xx are stored, errors are executed again) or "none" (default).',
    )
    retention: Duration = Field(
        default=0.0, description="Seconds for which the provider is sure to remember a key: its floor; default 0."
    )
    margin: Duration | None = Field(
        default=None,
        description="Seconds that a replay keeps away from the end of retention; default flight_limit + "
        "pause_allowance, so that no replay can arrive after it.",
    )


class MarkSettings(Section):
    """The mark of this deployment, so that its objects are known in an account that others use too."""

    at: Pointer = Field(
        description="JSON pointer to where the name of the environment is written in every body, as "
        '"/metadata/idem_deployment", and stands in the provider\'s objects; no default.'
    )
    key_at: Pointer | None = Field(
        default=None,
        description='The same for the provider key, as "/metadata/idem_key", so that an object or event names its '
        "call; default none.",
    )
    shown_at: Pointer | None = Field(
        default=None,
        description="Where `at` stands in the provider's objects, if elsewhere than in a body; default as `at`.",
    )
    shown_key_at: Pointer | None = Field(default=None, description="The same for `key_at`; default as `key_at`.")
    not_in: list[str] = Field(
        default_factory=list,
        description="Paths whose bodies carry no mark, because the provider refuses it there or it would write over "
        'that of another call, as "/v1/payment_intents/*/confirm"; a star is any one segment, ** at the end all that '
        "follow, and ! before a path takes it out again; default none.",
    )

    @field_validator("not_in")
    @classmethod
    def _are_patterns(cls, value: list[str]) -> list[str]:
        for each in value:
            if not is_pattern(each.removeprefix("!")):
                raise ValueError(f"{each!r} is no pattern of paths: a star stands for a whole segment, as /v1/*/cancel")
        return value

    @field_validator("at", "key_at", "shown_at", "shown_key_at")
    @classmethod
    def _is_a_member(cls, value: str | None) -> str | None:
        if value == "":
            raise ValueError("the mark is a member of the body, not the whole of it")
        return value

    @model_validator(mode="after")
    def _are_two_places(self) -> MarkSettings:
        if self.key_at is not None:
            at, key_at = json_pointer.parse(self.at), json_pointer.parse(self.key_at)
            shorter = min(len(at), len(key_at))
            if at[:shorter] == key_at[:shorter]:
                raise ValueError("at and key_at cannot be one place, nor can one stand inside the other")
        return self

    def build(self, environment: str) -> Mark:
        return Mark(
            json_pointer.parse(self.at),
            environment,
            tokens(self.key_at),
            tuple(self.not_in),
            shown_at=tokens(self.shown_at),
            shown_key_at=tokens(self.shown_key_at),
        )

"""`deployment_tag` of a provider in idem.toml: what every request carries, and lists and events show again.

An account is often shared with other deployments, with code of before and with a dashboard; an object that carries
the tag is ours, whatever else is there.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from idem.outbox.providers import response
from idem.outbox.providers.path_patterns import is_pattern, listed
from idem.outbox.values import json_pointer
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import INDEX, MISSING, Tokens
from idem.outbox.values.settings_base import Pointer, Section


class DeploymentTag(Section):
    """The tag of this deployment, so that its objects are known in an account that others use too."""

    at: Pointer
    """JSON pointer to where the name of the environment is written in every body, as "/metadata/idem_deployment", and
    stands in the provider's objects; no default."""
    key_at: Pointer | None = None
    """The same for the provider key, e.g. "/metadata/idem_key", so that an object or event names its call; default
    none."""
    shown_at: Pointer | None = None
    """Where `at` stands in the provider's objects, if elsewhere than in a body; default as `at`."""
    shown_key_at: Pointer | None = None
    """The same for `key_at`; default as `key_at`."""
    not_in: list[str] = Field(default_factory=list)
    """Paths whose bodies carry no tag, because the provider refuses it there or it would write over that of another
    call, e.g. "/v1/payment_intents/*/confirm"; a star is any one segment, ** at the end all that follow, and ! before a
    path takes it out again; default none."""

    @field_validator("not_in")
    @classmethod
    def _are_patterns(cls, value: list[str]) -> list[str]:
        for each in value:
            if not is_pattern(each.removeprefix("!")):
                raise ValueError(
                    f"{each!r} is not a pattern of paths: a star stands for a whole segment, e.g. /v1/*/cancel"
                )
        return value

    @field_validator("at", "key_at", "shown_at", "shown_key_at")
    @classmethod
    def _is_a_member(cls, value: Tokens | None) -> Tokens | None:
        if value == ():
            raise ValueError("the tag is a member of the body, not the whole of it")
        return value

    @model_validator(mode="after")
    def _are_two_places(self) -> DeploymentTag:
        if self.key_at is not None:
            shorter = min(len(self.at), len(self.key_at))
            if self.at[:shorter] == self.key_at[:shorter]:
                raise ValueError("at and key_at cannot be one place, nor can one stand inside the other")
        return self

    def belongs(self, path: str) -> bool:
        """Whether the body of a call to this path carries it."""
        return not listed(self.not_in, path)

    def written(self, content: Any, deployment: str, provider_key: str) -> Any:
        """The body with both values in it; objects on the way are made, lists are not. Raises Unrenderable."""
        content = _put({} if content is None else content, self.at, deployment, self.at)
        return content if self.key_at is None else _put(content, self.key_at, provider_key, self.key_at)

    def ours(self, shown: Any, deployment: str) -> bool:
        """Whether an object carries the tag of this deployment."""
        return response.word(json_pointer.resolve(shown, self.shown_at or self.at)) == deployment

    def key(self, shown: Any) -> str | None:
        """The provider key that an object carries."""
        return response.word(json_pointer.resolve(shown, self.shown_key_at or self.key_at))


def _put(value: Any, tokens: Tokens, text: str, whole: Tokens) -> Any:
    if not tokens:
        if value not in (MISSING, text):
            raise _clash(whole, "the operation writes another value there")
        return text
    token, rest = tokens[0], tokens[1:]
    if value is MISSING:
        value = {}
    if isinstance(value, dict):
        return {**value, token: _put(value.get(token, MISSING), rest, text, whole)}
    if isinstance(value, list) and INDEX.fullmatch(token) and int(token) < len(value):
        index = int(token)
        return [*value[:index], _put(value[index], rest, text, whole), *value[index + 1 :]]
    kind = "a list without such an item" if isinstance(value, list) else "not an object"
    raise _clash(whole, f"what the operation writes on the way is {kind}")


def _clash(whole: Tokens, why: str) -> Unrenderable:
    return Unrenderable(
        f"the tag of this deployment stands at {json_pointer.render(whole)} of every body, but {why}: change the body "
        "of the operation, or deployment_tag of its provider"
    )

"""The mark of this deployment: what every request carries, and lists and events show again.

An account is often shared with other deployments, with code of before and with a dashboard; an object that carries
the mark is ours, whatever else is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from idem.outbox.providers import response
from idem.outbox.providers.path_patterns import listed
from idem.outbox.values import json_pointer
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import INDEX, MISSING, Tokens


@dataclass(frozen=True, slots=True)
class Mark:
    """Where in a body the name of this deployment stands, and where the provider key, if it has a place there too.

    The pointers hold for the body of a request and, unless `shown_at` and `shown_key_at` say where they stand there,
    for the provider's object alike. `not_in` are patterns of paths
    whose bodies carry none (`idem.outbox.providers.path_patterns`).
    """

    at: Tokens
    deployment: str
    key_at: Tokens | None = None
    not_in: tuple[str, ...] = ()
    shown_at: Tokens | None = None
    shown_key_at: Tokens | None = None

    def belongs(self, path: str) -> bool:
        """Whether the body of a call to this path carries it."""
        return not listed(self.not_in, path)

    def written(self, content: Any, provider_key: str) -> Any:
        """The body with both values in it; objects on the way are made, lists are not. Raises Unrenderable."""
        content = _put({} if content is None else content, self.at, self.deployment, self.at)
        return content if self.key_at is None else _put(content, self.key_at, provider_key, self.key_at)

    def ours(self, shown: Any) -> bool:
        """Whether an object carries the mark of this deployment."""
        return response.word(json_pointer.resolve(shown, self.shown_at or self.at)) == self.deployment

    def key(self, shown: Any) -> str | None:
        """The provider key that an object carries."""
        at = self.shown_key_at or self.key_at
        return None if at is None else response.word(json_pointer.resolve(shown, at))


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
    kind = "a list without such an item" if isinstance(value, list) else "no object"
    raise _clash(whole, f"what the operation writes on the way is {kind}")


def _clash(whole: Tokens, why: str) -> Unrenderable:
    return Unrenderable(
        f"the mark of this deployment stands at {json_pointer.render(whole)} of every body, but {why}: change the body "
        "of the operation, or the mark of its provider"
    )

"""What an operation of idem.toml, and each step of one, says about its call."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field, field_validator

from idem.outbox.providers import template
from idem.outbox.providers.request_parts import CREDENTIALS, check_once, check_settable
from idem.outbox.providers.template import Hole, Template, Text
from idem.outbox.values import canonical
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.settings_base import Section

HttpMethod: TypeAlias = Literal["POST", "PUT", "PATCH", "DELETE"]


class Templated(Section):
    """A table whose `body` is a JSON value with places."""

    OURS: ClassVar[frozenset[str]] = frozenset()
    """The names under `idem.` that it may use."""

    @field_validator("body", check_fields=False)
    @classmethod
    def _is_template(cls, value: Any) -> Any:
        Template.compile(canonical.plain_json(value), cls.OURS)
        return value


class CallSettings(Templated):
    """One call to a provider."""

    OURS: ClassVar[frozenset[str]] = frozenset({"key"})

    provider: str
    """Name of the provider, one of providers.<name>."""
    account: str | None = None
    """Name of the provider's account; default the only one that it has."""
    method: HttpMethod = "POST"
    """HTTP method; default POST."""
    path: str
    """Path and query, e.g. /payments/{id}; values are percent-encoded whole."""
    body: Any = None
    """JSON body; "{amount}" is the param with its type, {note?} may be missing; no default."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers beside the account's; values may have places; default none."""
    completes_when: Literal["exists", "final"] | None = None
    """When the call is done, and with it the key of an operation of one call: "exists": as soon as the provider has the
    object, also where it is pending or a rule says answer; later ends of it are later facts. "final": at its end; until
    then the client gets 202 with the interim answer. Default exists where a rule of the provider says answer, else
    final."""

    @field_validator("path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        text = template.compile_text(value, cls.OURS)
        if any(isinstance(part, Hole) and part.optional for part in text):
            raise ValueError("a param of the path cannot be optional: the address would be another one")
        try:
            template.check_path("".join("x" if isinstance(part, Hole) else part for part in text))
        except Unrenderable as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            parts = template.compile_text(text, cls.OURS)
            check_settable(name, "".join("x" if isinstance(part, Hole) else part for part in parts))
            if name.lower() in CREDENTIALS:
                raise ValueError(f"{name!r} is a credential: it belongs to the account, and is never stored")
        check_once(value)
        return value

    @property
    def path_text(self) -> Text:
        """The path with its places."""
        return template.compile_text(self.path, self.OURS)

    @property
    def header_texts(self) -> dict[str, Text]:
        """The headers with their places."""
        return {name: template.compile_text(text, self.OURS) for name, text in self.headers.items()}

    @property
    def body_template(self) -> Template | None:
        """The body with its places; None: there is none."""
        return None if self.body is None else Template.compile(self.body, self.OURS)

    def holes(self) -> list[tuple[str, Hole]]:
        """Every place of the request, with the setting in which it stands."""
        texts = [("path", self.path_text), *((f"headers.{name}", text) for name, text in self.header_texts.items())]
        found = [(where, part) for where, text in texts for part in text if isinstance(part, Hole)]
        body = self.body_template
        return found if body is None else [*found, *(("body", hole) for hole in body.holes())]

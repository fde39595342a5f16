"""What a table of idem.toml is made of: its base, durations, JSON pointers, and where a secret comes from."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError

from idem.outbox.values import durations, json_pointer
from idem.outbox.values.json_pointer import Tokens

Duration: TypeAlias = Annotated[float, BeforeValidator(durations.parse)]


def _tokens(value: Any) -> Tokens:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return json_pointer.parse(value)


Pointer: TypeAlias = Annotated[Tokens, PlainValidator(_tokens), PlainSerializer(json_pointer.render, when_used="json")]
"""A JSON pointer: text in idem.toml, and its tokens here."""


def _several(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return () if value is None else (_tokens(value),)
    return tuple(_tokens(each) for each in value) if isinstance(value, list) else value


Pointers: TypeAlias = Annotated[tuple[Pointer, ...], BeforeValidator(_several)]
"""One JSON pointer or a list of them."""


class Section(BaseModel):
    """A table of idem.toml. Unknown settings are errors. The text below a setting is its description."""

    # Built when it is first read: a table builds those inside it once more, and most are inside one.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def described(cls) -> dict[str, FieldInfo]:
        """The settings, each with the text below it as its description, where the source is at hand.

        pydantic's `use_attribute_docstrings` reads the source at every start, which takes as long as all else that is
        done about settings.
        """
        for name, text in _texts(cls).items():
            cls.model_fields[name].description = text
        return cls.model_fields


@functools.cache
def _texts(table: type[Section]) -> dict[str, str]:
    """What stands below each setting of a table and of those that it extends, in one line."""
    found: dict[str, str] = {}
    for each in reversed([base for base in table.__mro__ if issubclass(base, Section)]):
        try:
            source = inspect.getsource(each)
        except OSError:  # compiled modules alone were installed: messages then come without it
            continue
        (body,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(body, ast.ClassDef)
        for setting, text in itertools.pairwise(body.body):
            match setting, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    if name in table.model_fields:
                        found[name] = " ".join(words.split())
    return found


class Secret(Section):
    """Where a secret comes from: `{env = "BANK_TOKEN"}` or `{file = "/run/secrets/bank"}`, never the file itself."""

    env: str | None = Field(default=None, min_length=1)
    """Name of the environment variable that holds the secret."""
    file: str | None = Field(default=None, min_length=1)
    """File that holds the secret; a relative path is beside idem.toml."""
    prefix: str = ""
    """Text before the secret, e.g. "Bearer "; default none, the secret stands alone."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_place(cls, value: Any) -> Any:
        if not isinstance(value, dict | Secret):
            raise ValueError('a secret never stands in idem.toml; say where it is: {env = "NAME"} or {file = "path"}')
        return value

    @model_validator(mode="after")
    def _is_one_place(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("say either env or file")
        return self

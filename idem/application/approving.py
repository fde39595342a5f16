"""Which calls of an operation of Python wait for a person, and what their clients get if that person says no."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from idem.application import functions
from idem.outbox.domain.operation import Answer
from idem.outbox.values.errors import ConfigError

if TYPE_CHECKING:
    from idem.application.definition import Definition


def check(definition: Definition, where: str) -> None:
    """Raises ConfigError for an approval that cannot be asked for."""
    functions.check(f"{where}: approve=", definition.approve, "takes the params, and returns True or False", 1)
    if not isinstance(definition.rejected, Answer):
        functions.check(f"{where}: rejected=", definition.rejected, "is an Answer, or takes the intent's id", 1)
    if definition.approve is None and definition.settings.get("approve") is None:
        if definition.rejected is not None:
            raise ConfigError(
                f"{where}: rejected= is for an operation with approve=: without it, no request is rejected"
            )
    elif definition.inline or not (definition.provider or definition.steps):
        why = "your own code makes its call" if definition.inline else "your own transaction is its effect"
        raise ConfigError(
            f"{where}.approve: {why}, so idem cannot hold it back until a person approves it. Leave approve "
            "out, or give the operation a provider and a request"
        )


def approving(definition: Definition) -> Callable[[Any], object] | None:
    """Whether a call with these JSON params needs an approval, by the definition's own function; None: it has none."""
    approve = definition.approve
    return None if approve is None else lambda params: approve(definition.read(params))


def rejecting(definition: Definition) -> Callable[[str], Answer] | None:
    """What the client of a rejected request gets; None: the default."""
    rejected = definition.rejected
    if rejected is None or callable(rejected):
        return rejected
    return lambda intent: rejected

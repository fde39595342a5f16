"""Defines a handler, and the event that it gets."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from uuid import UUID

from pydantic import BaseModel

from idem.outbox.domain.operation import Answer
from idem.outbox.domain.transition import EventType
from idem.outbox.values.errors import ConfigError

P = TypeVar("P")

Begin: TypeAlias = Literal["registered", "first"]
Hears: TypeAlias = Literal["settled", "step"]
"""Which events a handler gets: those of an intent that settles, or the ends of the steps of a flow."""
ConnectionKind: TypeAlias = Literal["Session", "Connection", "AsyncSession", "AsyncConnection"]
WAYS: tuple[ConnectionKind, ...] = ("AsyncSession", "AsyncConnection", "Session", "Connection")
ASYNC: frozenset[ConnectionKind] = frozenset({"AsyncSession", "AsyncConnection"})


@dataclass(frozen=True, slots=True)
class Settled(Generic[P]):
    """An event of an intent, as a handler gets it. An intent's events come in the order of their numbers."""

    event: EventType
    """completed: it has ended. rested: nothing happened and nothing of ours follows, the client may send it again.
    partial: something of a flow is done, and an operator must decide about the rest.
    corrected: what was said before is wrong or contradicted. later_fact: it had ended, and the provider says more.
    step (for `on_step` alone): a step of a flow has ended."""
    number: int
    """1 for the first event of its intent, then one more each."""
    at: datetime
    """When it was written, by the database's clock, UTC."""
    intent: UUID
    tenant: str
    operation: str
    key: str
    """The client's own idempotency key."""
    params: P
    """As accepted: the operation's model where it has one, else JSON. Of what the endpoint itself refused or completed
    it is the client's body, as JSON where that is none of the model's."""
    label: str | None
    state: str
    """The intent's state with this event: completed or failed_retryable; with a step's also in_progress."""
    outcome: str | None
    """How it ended: succeeded, refused, cancelled, rejected or local; of a later fact how the object itself ended."""
    reference: str | None
    """The provider's own, as pay_123."""
    status: str | None
    """The provider's own word, where the event says it."""
    fields: Mapping[str, Any]
    """What the operation's contract takes from the provider's answer, as it is known when the handler runs."""
    interim: bool
    """The object exists and its end is to come (a customer must still act): a `later_fact` reports that."""
    details: Mapping[str, Any]
    """Of a correction: the proofs that contradict each other."""
    answer: Answer | None
    """The client's answer, as stored; None where nothing is stored, or not any more."""
    step: str | None = None
    """Of the event `step`: the name of the step. `reference`, `status` and `fields` are then the step's own."""
    step_outcome: str | None = None
    """How that step ended: succeeded, refused, skipped or cancelled."""

    @property
    def succeeded(self) -> bool:
        """Whether the effect exists: the outcome is succeeded or local. Of the event `step`: the step's effect."""
        return self.step_outcome == "succeeded" if self.event == "step" else self.outcome in ("succeeded", "local")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that is called once for each event of an operation's intents.

    `name` is what its marks are kept under: under another name it is another handler. `begin` says which events a new
    one gets: those after it was `registered`, or all from the `first`. `hears`: of which kind.
    """

    name: str
    operation: str
    function: Callable[..., Any]
    model: type[BaseModel] | None
    is_async: bool
    read: Callable[[Any], Any] | None = None
    begin: Begin = "registered"
    hears: Hears = "settled"

    def params(self, params: Any) -> Any:
        """JSON params as the function wants them. Raises what the model raises."""
        if self.read is not None:
            return self.read(params)
        return params if self.model is None else self.model.model_validate(params)

    def way(self) -> tuple[ConnectionKind, type | None]:
        """What the function's first parameter is, as `way`. Raises ConfigError."""
        return way(self.function, f"handlers.{self.name}", "the session and the settled intent", 2)


def way(function: Callable[..., Any], where: str, takes: str, number: int) -> tuple[ConnectionKind, type | None]:
    """What a function's first parameter is, by its annotation, and the class that it names, where that is known.

    A class of the user's own that derives from SQLAlchemy's is given as such. `takes`: what its parameters are, in
    words, and `number` how many. Raises ConfigError that begins with `where`.
    """
    is_async = inspect.iscoroutinefunction(function)
    default: ConnectionKind = "AsyncSession" if is_async else "Session"
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind <= p.VAR_POSITIONAL]
    if len(parameters) != number:
        raise ConfigError(f"{where}: it must take {_NUMBERS[number]} parameters, {takes}")
    named = parameters[0].annotation
    if isinstance(named, str):
        # As written: what it names need not be imported where it is only a type.
        said = named.strip("\"' ").rpartition(".")[2]
        found = next((each for each in WAYS if said == each), None)
        scope = getattr(inspect.unwrap(function), "__globals__", {})
        named = scope.get(said, named if found is None else inspect.Parameter.empty)
        if found is not None and not isinstance(named, type):
            return _fits(where, found, is_async=is_async), None
    if named is inspect.Parameter.empty:
        return default, None
    if isinstance(named, type):
        names = {base.__name__ for base in named.__mro__ if base.__module__.startswith("sqlalchemy.")}
        for each in WAYS:
            if each in names:
                return _fits(where, each, is_async=is_async), named
    raise ConfigError(
        f"{where}: its first parameter is a {getattr(named, '__name__', named)}, which is not one of SQLAlchemy's "
        f"{', '.join(WAYS)}"
    )


_NUMBERS = {2: "two", 3: "three"}


def _fits(where: str, way: ConnectionKind, *, is_async: bool) -> ConnectionKind:
    if (way in ASYNC) is not is_async:
        kind, others = ("asynchronous", "AsyncSession") if is_async else ("synchronous", "Session")
        raise ConfigError(f"{where}: the function is {kind} and takes a {way}: it needs a {others}")
    return way


def handler(
    operation: str,
    function: Callable[..., Any],
    read: Callable[[Any], Any] | type[BaseModel] | None = None,
    *,
    name: str | None = None,
    begin: Begin = "registered",
    hears: Hears = "settled",
) -> Handler:
    """A handler of an operation. `read` makes its params of JSON: a function, a pydantic model, or None for JSON.

    `name` stands for module and name of the function, so that it may be moved. Raises ConfigError.
    """
    if not callable(function):
        raise ConfigError(f"handlers.{operation}: on_{hears}() marks a function: give a function, not {function!r}")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"handlers.{operation}: name is {name!r}, but must be text")
    called = getattr(function, "__qualname__", "<no name>")
    said = name or f"{function.__module__}.{called}"
    # One function may hear both, and is two handlers then.
    full = f"{operation}:{said}" if hears == "settled" else f"{operation}:step:{said}"
    if name is None and "<" in called.rpartition(".")[2]:
        raise ConfigError(
            f'handlers.{full}: it has no name under which idem could record what it has handled: pass name="..."'
        )
    if begin not in ("registered", "first"):
        raise ConfigError(f'handlers.{full}: begin is {begin!r}, but must be "registered" or "first"')
    model = read if isinstance(read, type) and issubclass(read, BaseModel) else None
    made = Handler(
        full, operation, function, model, inspect.iscoroutinefunction(function), None if model else read, begin, hears
    )
    made.way()
    return made

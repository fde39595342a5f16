"""A flow defined in Python: its steps, and the operations that they are to the daemons."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from idem.application import functions
from idem.outbox.config import Configuration, flow_checks
from idem.outbox.domain.completion import completes_when
from idem.outbox.domain.contract import LOCAL, ProviderRequest
from idem.outbox.domain.operation import OperationSpec, Results, StepSpec
from idem.outbox.domain.plan import OnRefusal
from idem.outbox.domain.provider import Provider
from idem.outbox.handlers.handler import way
from idem.outbox.providers.local import LocalProvider
from idem.outbox.providers.send import METHOD, SendProvider
from idem.outbox.values.errors import ConfigError

if TYPE_CHECKING:
    from idem.application.definition import Definition

TAKES: Final = "takes the params and the results so far"
RUNS: Final = "the session, the params and the results so far"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an operation that has several.

    With a `provider` it is a call: `request(params, results)` builds it, and `results["name"]` is what the step of that
    name has come to (`succeeded`, `reference`, `status`, `fields`). With `run(session, params, results)` it writes your
    own rows, in the transaction that ends the step: it returns a mapping for later steps, None, or a `Refused`.
    `when(params, results)` False: the step is skipped. `on_refusal`: what follows if the step is refused; every step
    after the first says it: `stop`, `compensate` or `operator`. `undo`: the step that undoes this one when a later one
    is refused with `compensate`. `completes_when`: as in an operation, of this call.
    """

    name: str
    provider: str | None = None
    account: str | None = None
    request: Callable[[Any, Results], Any] | None = None
    run: Callable[..., Any] | None = None
    when: Callable[[Any, Results], bool] | None = None
    on_refusal: OnRefusal | None = None
    undo: Step | None = None
    completes_when: Literal["exists", "final"] | None = None


def check(definition: Definition) -> None:
    """Raises ConfigError for steps that make no flow."""
    where = f'operations."{definition.name}"'
    if definition.inline or definition.provider or definition.request is not None:
        raise ConfigError(
            f"{where}: each of its steps has a call of its own: leave provider=, request= and inline= out"
        )
    if definition.settings.get("account") is not None:
        raise ConfigError(f"{where}: it has steps: say account= at each step")
    if not isinstance(definition.steps, tuple):
        raise ConfigError(f"{where}: steps= is a list of Step(…), and {definition.steps!r} is none")
    for step, undone in each_of(definition.steps):
        if not isinstance(step, Step):
            raise ConfigError(f"{where}: steps= is a list of Step(…), and {step!r} is none")
        at = f"{where}.steps.{step.name}"
        functions.check(f"{at}: request=", step.request, f"{TAKES}, and returns a Request", 2)
        functions.check(f"{at}: when=", step.when, f"{TAKES}, and returns True or False", 2)
        if step.provider == LOCAL:
            raise ConfigError(f"{at}.provider: {LOCAL!r} is a reserved name: say run= for a function of your own")
        if (step.provider is None) == (step.run is None):
            raise ConfigError(f"{at}: say provider= with request=, or run= for a function that writes your own rows")
        if step.provider is not None and step.request is None:
            raise ConfigError(
                f"{at}: say how its request is made: request=lambda p, results: Request('POST', '/…', json=…)"
            )
        if step.run is not None:
            if not callable(step.run):
                raise ConfigError(f"{at}: run= takes {RUNS}: give a function, not {step.run!r}")
            way(step.run, f"{at}: run=", RUNS, 3)
            if step.request is not None or step.account is not None or step.completes_when is not None:
                raise ConfigError(
                    f"{at}: request=, account= and completes_when= are of a step that calls a provider: leave them out"
                )
        if undone is not None and step.undo is not None:
            raise ConfigError(f"{at}: a step that undoes another one is not undone itself: leave undo= out")
    flow_checks.check(where, outlines(definition.steps), definition.settings.get("completes_when"))


def outlines(steps: Sequence[Step]) -> list[flow_checks.Outline]:
    """What the checks of a flow need of each step."""
    return [
        flow_checks.Outline(step.name, step.on_refusal, None if step.undo is None else step.undo.name,
                            None if step.undo is None else step.undo.on_refusal)
        for step in steps
    ]  # fmt: skip


def build(definition: Definition, found: Configuration, base: OperationSpec) -> OperationSpec:
    """The operation with its steps over the providers of a configuration; `base`: what they share."""
    completing = flow_checks.completing(definition.settings.get("completes_when"))
    made = tuple(
        _step(definition, found, base, step, undone, completes=step.name == completing)
        for step, undone in each_of(definition.steps)
    )
    return dataclasses.replace(
        base, kind="provider", provider=made[0].provider, account=made[0].account, steps=made,
        request=definition.no_request,
    )  # fmt: skip


def each_of(steps: Sequence[Step]) -> Iterator[tuple[Step, Step | None]]:
    """The steps in the order of a plan, with the step that each undoes."""
    yield from ((step, None) for step in steps)
    yield from ((step.undo, step) for step in reversed(steps) if isinstance(step, Step) and step.undo is not None)


def _step(
    definition: Definition,
    found: Configuration,
    base: OperationSpec,
    step: Step,
    undone: Step | None,
    *,
    completes: bool,
) -> OperationSpec:
    account = LOCAL if step.provider is None else definition.account_of(found, step)
    provider: Provider = found.providers[step.provider] if step.provider is not None else LocalProvider()
    spec = StepSpec(
        name=step.name,
        kind="local" if step.provider is None else "call",
        request=None if step.request is None else _requesting(definition, step, step.request, provider),
        run=None if step.run is None else _running(definition, step.run),
        when=None if step.when is None else _deciding(definition, step.when),
        on_refusal=step.on_refusal or "stop",
        undoes=None if undone is None else undone.name,
        completes=completes,
    )
    return dataclasses.replace(
        base, kind="provider", provider=step.provider or LOCAL, account=account, step=spec,
        completes_when=completes_when(step.completes_when, provider.contract),
    )  # fmt: skip


def _requesting(
    definition: Definition, step: Step, request: Callable[[Any, Results], Any], provider: Provider
) -> Callable[[Any, Results], ProviderRequest]:
    def build(params: Any, results: Results) -> ProviderRequest:
        made = request(definition.read(params), results)
        if isinstance(provider, SendProvider):
            return ProviderRequest(METHOD, f"/{definition.name}/{step.name}", json=made)
        return definition.checked(made)

    return build


def _deciding(definition: Definition, when: Callable[[Any, Results], bool]) -> Callable[[Any, Results], bool]:
    def decide(params: Any, results: Results) -> bool:
        return bool(when(definition.read(params), results))

    return decide


def _running(definition: Definition, run: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a local step as the worker calls it: with JSON params, and the first parameter of its own."""

    @functools.wraps(run)
    def running(db: Any, params: Any, results: Results) -> Any:
        return run(db, definition.read(params), results)

    @functools.wraps(run)
    async def running_async(db: Any, params: Any, results: Results) -> Any:
        return await run(db, definition.read(params), results)

    return running_async if inspect.iscoroutinefunction(run) else running

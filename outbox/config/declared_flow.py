"""Operations of several calls declared in idem.toml: their steps, made of templates and conditions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from idem.outbox.config import declared, flow_checks
from idem.outbox.config.flow_settings import FlowSettings, StepSettings, UndoSettings
from idem.outbox.config.operation_settings import OperationSettings, OperationTable
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.domain.completion import completes_when
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.domain.operation import OperationSpec, Results, StepSpec
from idem.outbox.providers.template import OURS
from idem.outbox.values import json_pointer


def operation(
    name: str, settings: OperationTable, accounts: Sequence[str], providers: Mapping[str, ProviderSettings]
) -> OperationSpec:
    """An operation of one call, or of several; `accounts`: those of its calls, in their order. The settings have been
    checked."""
    if isinstance(settings, FlowSettings):
        return build(name, settings, accounts, providers)
    assert isinstance(settings, OperationSettings)
    provider = providers[settings.provider]
    return declared.build(name, settings, accounts[0], provider.contract(settings.provider), provider.encoding)


def build(
    name: str, settings: FlowSettings, accounts: Sequence[str], providers: Mapping[str, ProviderSettings]
) -> OperationSpec:
    """The same of one that has steps: its calls are in the order of a plan."""
    numbered = settings.numbered
    base = OperationSpec(
        name=name, provider=numbered[0][1].provider, account=accounts[0], request=_no_request,
        **declared.shared(settings),
    )  # fmt: skip
    completing = flow_checks.completing(settings.completes_when)
    steps = tuple(
        _step(base, step, undone, account, providers[step.provider], completing)
        for (_, step, undone), account in zip(numbered, accounts, strict=True)
    )
    return replace(base, steps=steps)


def _step(
    base: OperationSpec,
    settings: UndoSettings,
    undone: StepSettings | None,
    account: str,
    provider: ProviderSettings,
    completing: str | None,
) -> OperationSpec:
    said = settings.on_refusal if isinstance(settings, StepSettings) else None
    spec = StepSpec(
        name=settings.name,
        kind="call",
        request=_requesting(settings, provider),
        when=_deciding(settings) if settings.when else None,
        on_refusal=said or "stop",
        undoes=None if undone is None else undone.name,
        completes=settings.name == completing,
    )
    return replace(
        base, provider=settings.provider, account=account, step=spec,
        completes_when=completes_when(settings.completes_when, provider.contract(settings.provider)),
    )  # fmt: skip


def _requesting(settings: UndoSettings, provider: ProviderSettings) -> Callable[[Any, Results], ProviderRequest]:
    made = declared.requesting(settings, provider.encoding)

    def request(params: Any, results: Results) -> ProviderRequest:
        return made(_scope(params, results))

    return request


def _deciding(settings: UndoSettings) -> Callable[[Any, Results], bool]:
    conditions = settings.conditions

    def when(params: Any, results: Results) -> bool:
        scope = _scope(params, results)
        return all(each.holds(json_pointer.resolve(scope, each.at)) for each in conditions)

    return when


def _scope(params: Any, results: Results) -> dict[str, Any]:
    """What the places of a step name. A value that a step does not have is missing, and never sent as null."""
    ended = {
        name: {word: value for word, value in told.items() if value is not None}
        for name, told in declared.results(results).items()
    }
    return {**(params if isinstance(params, dict) else {}), OURS: {"steps": ended}}


def _no_request(params: Any) -> NoReturn:
    raise AssertionError("each step of this operation has a request of its own")

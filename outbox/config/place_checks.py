"""The places of requests and answers: params that the schema does not have, results of steps that are not there."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from idem.outbox.config import flow_checks
from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.findings import Findings
from idem.outbox.config.flow_settings import FlowSettings, StepSettings, UndoSettings
from idem.outbox.config.operation_settings import ApproveRule, OperationTable
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.source import SettingPath
from idem.outbox.providers.template import OURS, Template
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import Tokens
from idem.outbox.values.suggestions import nearest

STEPS: Final = (OURS, "steps")
WORDS: Final = ("reference", "status", "outcome", "fields")
"""What may be used of the result of a step."""


def check_params(findings: Findings, loc: SettingPath, params: Mapping[str, Any]) -> None:
    """An operation that takes anything."""
    if not params:
        findings.warn(
            (*loc, "params"),
            "any params are accepted, and what cannot be rendered or is refused there becomes a dead letter",
            "Write a JSON Schema",
        )


def check_places(findings: Findings, loc: SettingPath, call: CallSettings, params: Mapping[str, Any]) -> None:
    """Places of a request for params that may be missing."""
    properties, required = params.get("properties"), list(params.get("required", []))
    if isinstance(call, UndoSettings):
        # Where the step is made, its `when` has found them.
        required += [each.at[0] for each in call.conditions if each.values or each.exists]
    if not isinstance(properties, dict):
        return
    for where, hole in call.holes():
        if hole.path[0] == OURS:
            continue
        at, first = (*loc, *where.split(".", 1)), hole.path[0]
        if first not in properties:
            _check_param(findings, at, f"{{{hole.name}}}", first, params)
        elif first not in required and not hole.optional:
            findings.warn(
                at,
                f"{{{hole.name}}} may be missing, and the request could not be rendered",
                f"Add {first} to params.required, or write {{{hole.name}?}}",
            )


def _check_param(findings: Findings, at: SettingPath, said: str, first: str, params: Mapping[str, Any]) -> None:
    properties = params.get("properties")
    if isinstance(properties, dict) and first not in properties and params.get("additionalProperties") is False:
        findings.error(at, f"{said} is not a param of the schema", nearest(first, [str(known) for known in properties]))


def check_pointers(findings: Findings, loc: SettingPath, settings: OperationTable) -> None:
    """Pointers of an operation to params that the schema does not have."""
    approve = settings.approve if isinstance(settings.approve, ApproveRule) else None
    said = {
        ("ordering_key",): settings.ordering_key,
        ("approve", "at"): None if approve is None else approve.at,
    }
    for at, pointer in said.items():
        tokens = () if pointer is None else json_pointer.parse(pointer)
        if tokens:
            _check_param(findings, (*loc, *at), str(pointer), str(tokens[0]), settings.params)


def check_steps(
    findings: Findings, loc: SettingPath, settings: FlowSettings, providers: Mapping[str, ProviderSettings]
) -> None:
    """Steps that make no flow, and places for results that are not there."""
    outlines = [
        flow_checks.Outline(step.name, step.on_refusal, None if step.undo is None else step.undo.name)
        for step in settings.steps
    ]
    for mistake in flow_checks.mistakes(outlines, settings.completes_when):
        findings.error((*loc, *mistake.at), mistake.what, mistake.do)
    _Places(findings, loc, settings, providers).check()


class _Places:
    """Checks each place of an operation for the result of a step."""

    def __init__(
        self, findings: Findings, loc: SettingPath, settings: FlowSettings, providers: Mapping[str, ProviderSettings]
    ) -> None:
        self._findings, self._loc, self._settings, self._providers = findings, loc, settings, providers
        self._steps = {step.name: step for _, step, _ in settings.numbered}

    def check(self) -> None:
        """Requests and conditions know the steps before theirs, and answers those that have surely ended."""
        settings, forward = self._settings, [step.name for step in self._settings.steps]
        for at, step, undone in settings.numbered:
            own = step.name if undone is None else undone.name
            known = forward[: forward.index(own) + (undone is not None)]
            sure = {name for name in known if (undone is not None and name == own) or self._is_made(name, step)}
            for where, path, optional in _places(step):
                self._check((*at, *where), path, known, sure, optional=optional)
            for pointer in step.when:
                tokens = json_pointer.parse(pointer)
                if tokens[0] == OURS:
                    self._check((*at, "when"), tokens, known, set(known), optional=True)
                else:
                    at_when = (*self._loc, *at, "when")
                    _check_param(self._findings, at_when, pointer, tokens[0], settings.params)
        completing = flow_checks.completing(settings.completes_when)
        last = forward.index(completing) + 1 if completing in forward else len(forward)
        ended = {name for name in forward[:last] if not self._steps[name].when}
        for said, sure in (("succeeded", ended), ("refused", set(forward[:1]))):
            answer = getattr(settings.answer, said)
            if answer is not None:
                for hole in Template.compile(answer.body, answer.OURS).holes():
                    at = ("answer", said, "body")
                    self._check(at, hole.path, list(self._steps), sure, optional=hole.optional)

    def _is_made(self, name: str, step: UndoSettings) -> bool:
        """Whether the step `name` is surely done where this one is made."""
        when = self._steps[name].when
        asks = any(json_pointer.parse(at)[:3] == (*STEPS, name) for at in step.when)
        return asks or when.items() <= step.when.items() if when else True

    def _check(
        self, at: SettingPath, path: Tokens, known: Collection[str], sure: Collection[str], *, optional: bool
    ) -> None:
        if path[0] != OURS or (path[:2] != STEPS and at[-1] != "when"):
            return
        loc, said = (*self._loc, *at), f"{{{'.'.join(path)}}}"
        (name, word), rest = (*path[2:4], "", "")[:2], path[4:]
        if path[:2] != STEPS or name not in known:
            later = name in self._steps and path[:2] == STEPS
            what = f"{said} is not there yet where this step begins" if later else f"{said} is the result of no step"
            self._findings.error(loc, what, nearest(name, list(known)) if known else "No step comes before")
        elif word not in WORDS or bool(rest) != (word == "fields"):
            forms = ", ".join(f"{{idem.steps.{name}.{each}}}" for each in ("reference", "status", "outcome"))
            self._findings.error(
                loc, f"{said} is no value", f"Of a step there are {forms} and {{idem.steps.{name}.fields.NAME}}"
            )
        else:
            self._check_value(loc, said, name, word, rest)
            if name not in sure and not optional:
                self._findings.warn(
                    loc,
                    f"{said} may be missing, because {name} may not have been made, and this could not be rendered",
                    f"Write {{{'.'.join(path)}?}}, or give both steps the same `when`",
                )

    def _check_value(self, loc: SettingPath, said: str, name: str, word: str, rest: Tokens) -> None:
        provider = self._providers.get(self._steps[name].provider)
        if provider is None or provider.kind == "send":
            return
        places = [provider.object, *(rule.object for rule in provider.outcome)]
        fields = {field for place in places for field in place.fields}
        if word == "fields" and rest[0] not in fields:
            self._findings.warn(
                loc,
                f"{said} will be missing: nothing says where {rest[0]} is in an answer of provider "
                f"{self._steps[name].provider}",
                f"Write it into its object.fields. {nearest(rest[0], fields)}" if fields else "Write object.fields",
            )
        elif word in ("reference", "status") and all(getattr(place, word) is None for place in places):
            self._findings.warn(
                loc,
                f"{said} will be missing: nothing says where the {word} is in an answer of provider "
                f"{self._steps[name].provider}",
                f"Write its object.{word}",
            )


def _places(step: UndoSettings | StepSettings) -> Iterator[tuple[SettingPath, Tokens, bool]]:
    for where, hole in step.holes():
        yield tuple(where.split(".", 1)), hole.path, hole.optional

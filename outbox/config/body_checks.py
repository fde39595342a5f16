"""Finds bodies that no call could have: it renders the constant parts, and takes any fitting value for a place."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.findings import Findings
from idem.outbox.config.operation_settings import OperationTable
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.source import SettingPath
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.providers import path_patterns, template
from idem.outbox.providers.body_encoding import encoded
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.template import KEY, Hole, Text
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import MISSING

SAMPLE_KEY: Final = "3d9f0c52-6a0e-5b7e-9d3b-1f4e8a7c2b60"


def check_bodies(
    findings: Findings,
    environment: str,
    providers: Mapping[str, ProviderSettings],
    operations: Mapping[str, OperationTable],
) -> None:
    """Cancels that could not be sent, and operations whose every call would end unrenderable: by the encoding, the key
    in the body, or the tag."""
    for name, each in providers.items():
        _check_cancel(findings, name, each)
    for name, operation in operations.items():
        for at, call in operation.calls:
            provider = providers.get(call.provider)
            if provider is not None and provider.kind != "send":
                _check_body(findings, ("operations", name, *at, "body"), call, provider, environment)


def _check_body(
    findings: Findings, loc: SettingPath, call: CallSettings, provider: ProviderSettings, environment: str
) -> None:
    body = None if call.body_template is None else call.body_template.node
    request = ProviderRequest(call.method, _path(call, "x"), None if body is None else _constant(body, MISSING))
    try:
        HttpProvider(
            contract=replace(provider.contract(call.provider), deployment=environment),
            accounts={},
            encoding=provider.encoding,
            tag=None if provider.deployment_tag is None else _sure(provider.deployment_tag, call),
        ).freeze(request, SAMPLE_KEY)
        # Once more for the names of members whose values only a call knows.
        if body is not None:
            encoded(template.fill(_constant(body, {}), SAMPLE_KEY), provider.encoding)
    except Unrenderable as error:
        findings.error(
            loc,
            str(error),
            f"No call of this operation could be made: correct it, or encoding, key or deployment_tag of provider "
            f"{call.provider}",
        )


def _check_cancel(findings: Findings, name: str, provider: ProviderSettings) -> None:
    try:
        body = None if provider.cancel_by_key is None else provider.cancel_by_key.content(SAMPLE_KEY)
        if body is not None:
            encoded(body, provider.encoding)
    except Unrenderable as error:
        findings.error(
            ("providers", name, "cancel_by_key", "body"), str(error), "No cancel could be sent: correct it, or encoding"
        )


def _sure(tag: DeploymentTag, call: CallSettings) -> DeploymentTag | None:
    """The tag, if it belongs into this body for every value of the places in the path."""
    words = {"x", *(word for pattern in tag.not_in for word in path_patterns.split(pattern.removeprefix("!")))}
    return tag if all(tag.belongs(_path(call, word)) for word in words) else None


def _path(call: CallSettings, word: str) -> str:
    return "".join(word if isinstance(part, Hole) else part for part in call.path_text)


def _constant(node: Any, place: Any) -> Any:
    """What is constant of a body, for freezing."""
    constant = _filled(node, place)
    return {} if constant is MISSING else constant


def _filled(node: Any, place: Any) -> Any:
    """The template with `place` for what a call decides; what may be left out is `MISSING`."""
    match node:
        case tuple():
            holes = _places(node)
            unknown = MISSING if any(hole.optional for hole in holes) else place
            return unknown if holes else template.render_text(node, {})
        case dict():
            members = {
                _name(name, number): _filled(item, place)
                for number, (name, item) in enumerate(node.items())
                if not any(hole.optional for hole in _places(name))
            }
            return {name: item for name, item in members.items() if item is not MISSING}
        case list():
            # An object without members, so that those behind it keep their places.
            return [{} if item is MISSING else item for item in (_filled(each, place) for each in node)]
        case _:
            return node


def _name(text: Text, number: int) -> Any:
    """Unlike every other name of its object, as it may be; brackets that are written stay."""
    if not _places(text):
        return template.render_text(text, {})
    return "".join(f"\0{number}" if isinstance(part, Hole) else part for part in text)


def _places(text: Text) -> list[Hole]:
    return [part for part in text if isinstance(part, Hole) and part.path != KEY]

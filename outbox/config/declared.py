"""Operations declared in idem.toml: their functions, made of templates and a JSON Schema."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.operation_settings import (
    AnswerTemplate,
    ApproveRule,
    InterimTemplate,
    OperationSettings,
    OperationTable,
    RejectedTemplate,
)
from idem.outbox.config.params_validation import validator
from idem.outbox.domain.completion import completes_when
from idem.outbox.domain.contract import Contract, ProviderRequest
from idem.outbox.domain.operation import Answer, FinalOutcome, OperationSpec, Results
from idem.outbox.domain.outcomes import Pending, Succeeded
from idem.outbox.domain.problem_catalogue import MEDIA_TYPE, PROBLEMS
from idem.outbox.providers import template
from idem.outbox.providers.body_encoding import Encoding
from idem.outbox.providers.template import Hole, Template
from idem.outbox.values import json_pointer, storable
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_bytes import encoded
from idem.outbox.values.json_pointer import MISSING

JSON: Final = "application/json"

REFUSED: Final = PROBLEMS["provider_refused"]

LABEL_LENGTH: Final = 200

OF_THE_OPERATION: Final = (
    "after_expiry", "answer_ttl", "answer_version", "card_data", "give_up_after", "key_owner", "key_ttl",
    "max_redrives", "on_head_refused", "ordering_group", "ordering_key", "redrive", "retry", "start_within",
    "two_persons", "while_running",
)  # fmt: skip
"""Settings that the operation has under the same name."""


def build(
    name: str, settings: OperationSettings, account: str, contract: Contract, encoding: Encoding = "json"
) -> OperationSpec:
    """The operation; `contract` and `encoding` are its provider's. The settings have been checked: nothing here fails
    for a mistake in idem.toml."""
    return OperationSpec(
        name=name,
        provider=settings.provider,
        account=account,
        request=requesting(settings, encoding),
        completes_when=completes_when(settings.completes_when, contract),
        **shared(settings),
    )


def shared(settings: OperationTable) -> dict[str, Any]:
    """What an operation has beside its calls, as parts of an `OperationSpec`."""
    return dict(
        validate=validator(settings.params),
        answer=_answer(settings),
        **{setting: getattr(settings, setting) for setting in OF_THE_OPERATION},
        fingerprint_without=tuple(settings.fingerprint_without),
        schema=settings.params,
        answer_statuses=tuple(
            template.status if template is not None else status
            for template, status in ((settings.answer.succeeded, 201), (settings.answer.refused, REFUSED.status))
        )
        + (() if settings.answer.rejected is None else (settings.answer.rejected.status,)),
        label=_label(settings.label),
        interim=_interim(settings.answer.interim),
        approve=_approve(settings.approve),
        rejected=_rejected(settings.answer.rejected),
        templated=True,
    )


def requesting(settings: CallSettings, encoding: Encoding) -> Callable[[Any], ProviderRequest]:
    """Makes the request of a call from what its places name. It raises Unrenderable."""
    path, headers, body = settings.path_text, settings.header_texts, settings.body_template
    names = _outer_names(body) if encoding == "form" else []

    def request(params: Any) -> ProviderRequest:
        rendered = {name: template.render_text(text, params) for name, text in headers.items()}
        present = {name: value for name, value in rendered.items() if value is not MISSING}
        for name, value in present.items():
            template.check_header(name, value)
        for hole in names:
            _check_name(hole, params)
        return ProviderRequest(
            settings.method,
            template.render_path(path, params),
            None if body is None else body.render(params),
            present,
        )

    return request


def _outer_names(body: Template | None) -> list[Hole]:
    members = body.node if body is not None and isinstance(body.node, dict) else {}
    return [part for name in members for part in name if isinstance(part, Hole)]


def _check_name(hole: Hole, params: Any) -> None:
    # Brackets may be written into an outer name, as metadata[order], but a client's would choose another member.
    value = json_pointer.resolve(params, hole.path)
    if isinstance(value, str) and ("[" in value or "]" in value):
        raise Unrenderable(
            f"{hole.what} has a bracket, which a form cannot tell from its own, and is in a member's name"
        )


def _label(text: str | None) -> Callable[[Any], str | None]:
    if text is None:
        return lambda params: None
    parts = template.compile_text(text)

    def label(params: Any) -> str | None:
        try:
            rendered = template.render_text(parts, params)
        except Unrenderable:  # a label is for people; the effect does not depend on it
            return None
        return None if rendered is MISSING else storable.text(rendered, LABEL_LENGTH)

    return label


def _answer(settings: OperationTable) -> Callable[[FinalOutcome, str], Answer]:
    succeeded = _rendering(settings.answer.succeeded) or _succeeded
    refused = _rendering(settings.answer.refused) or _refused

    def answer(outcome: FinalOutcome, intent: str) -> Answer:
        return (succeeded if isinstance(outcome, Succeeded) else refused)(outcome, intent)

    return answer


def _rendering(settings: AnswerTemplate | None) -> Callable[[FinalOutcome, str], Answer] | None:
    if settings is None:
        return None
    body = Template.compile(settings.body, settings.OURS)
    headers = {"content-type": JSON, **{name.lower(): value for name, value in settings.headers.items()}}

    def render(outcome: FinalOutcome, intent: str) -> Answer:
        ours = {
            "intent": intent,
            "reference": outcome.reference,
            "status": outcome.status,
            "state": "completed",
            "steps": results(outcome.steps),
        }
        scope = {**storable.fields(outcome.fields), template.OURS: ours}
        return Answer(settings.status, encoded(body.render(scope)), headers)

    return render


def results(ends: Results) -> dict[str, Any]:
    """What templates may use of the ends of steps, by their names."""
    return {
        name: {
            "outcome": end.outcome,
            "reference": end.reference,
            "status": end.status,
            "fields": storable.fields(end.fields),
        }
        for name, end in ends.items()
    }


def _approve(rule: Literal["always"] | ApproveRule | None) -> Callable[[Any], bool] | None:
    if rule is None or rule == "always":
        return None if rule is None else lambda params: True
    at, above = json_pointer.parse(rule.at), rule.above

    def approve(params: Any) -> bool:
        found = json_pointer.resolve(params, at)
        # Where there is no number, nothing says that it is small.
        return isinstance(found, bool) or not isinstance(found, int | float) or not found <= above

    return approve


def _rejected(settings: RejectedTemplate | None) -> Callable[[str], Answer] | None:
    if settings is None:
        return None
    body = Template.compile(settings.body, settings.OURS)
    headers = {"content-type": JSON, **{name.lower(): value for name, value in settings.headers.items()}}

    def rejected(intent: str) -> Answer:
        return Answer(settings.status, encoded(body.render({template.OURS: {"intent": intent}})), headers)

    return rejected


def _interim(settings: InterimTemplate | None) -> Callable[[Pending], Any] | None:
    if settings is None:
        return None
    body = Template.compile(settings.body, settings.OURS)

    def render(working: Pending) -> Any:
        ours = {"reference": working.reference, "status": working.status}
        return body.render({**storable.fields(working.fields), template.OURS: ours})

    return render


def _succeeded(outcome: FinalOutcome, intent: str) -> Answer:
    return Answer(201, encoded(_fields(outcome, intent)), {"content-type": JSON})


def _refused(outcome: FinalOutcome, intent: str) -> Answer:
    """A problem of RFC 9457. `code` is ours and always the same; the provider's own stands in `provider_code`."""
    fields = storable.fields(outcome.fields)
    problem: dict[str, Any] = {
        "type": REFUSED.type,
        "title": REFUSED.title,
        "status": REFUSED.status,
        "code": REFUSED.code,
        "provider_code": fields.get("code", outcome.status),
    }
    message = fields.get("message")
    problem["detail"] = message if isinstance(message, str) else "The provider decided against it, and did not say why."
    return Answer(REFUSED.status, encoded({**problem, **_fields(outcome, intent)}), {"content-type": MEDIA_TYPE})


def _fields(outcome: FinalOutcome, intent: str) -> Mapping[str, Any]:
    return {
        "intent": intent,
        "state": "completed",
        "provider_reference": outcome.reference,
        "result": storable.fields(outcome.fields),
    }

"""The half of accept that needs no database: validate, canonicalise, fingerprint, build and freeze the request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from idem.outbox.domain import approval, fingerprints, keys, ordering
from idem.outbox.domain.contract import FrozenRequest, ProviderRequest
from idem.outbox.domain.decisions import Mismatch
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.plan import FlowPlan, PlannedStep
from idem.outbox.domain.provider import Provider
from idem.outbox.providers import tracing
from idem.outbox.values import canonical, card_data, storable
from idem.outbox.values.errors import ConfigError, IdemError, ParamsInvalid, Unrenderable
from idem.outbox.values.suggestions import nearest

REFUSED_NOW: Final = (ParamsInvalid, Unrenderable, ConfigError)
"""What `prepare` raises of a request that the operation may have accepted under an earlier configuration."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that accept needs of a request."""

    tenant: str
    operation: OperationSpec
    key: str
    fingerprint: str
    written: str
    """The params as JSON: written once, where the body was read, and not in the loop that sends it to the database.
    Nothing keeps the params themselves while the database is asked: a large body has far more of them in memory."""
    label: str | None
    provider: Provider
    provider_key: UUID
    request: FrozenRequest | None
    """None: a worker renders it."""
    plan: str | None = None
    """Of a flow: all its steps, as JSON."""
    traceparent: str | None = None
    query: str | None = None
    caller: str | None = None
    """The label of the token that it came with; None: it came from the tenant itself, by the library."""
    ordering_key: str | None = None
    approval: str | None = None
    """Whose approval the call needs before it is sent (`outbox.approval`); None: nobody's."""
    asked_by: str | None = None
    """Who asks for a call that needs an approval, as far as that is known."""

    @property
    def params(self) -> Any:
        """The params, parsed anew."""
        return json.loads(self.written)

    def as_stored(self, decided: object) -> Prepared | None:
        """The same request with a fingerprint that is composed as that of its key; None: this one is.

        The operation may leave out other members now, or give its keys to others. What was accepted is compared by the
        rules of that time (P3).
        """
        if not isinstance(decided, Mismatch):
            return None
        stored = decided.fingerprint
        if not fingerprints.composed_otherwise(stored, self.fingerprint, self.caller):
            return None
        composed = fingerprints.composed_as(
            stored, self.operation.name, self.params, query=self.query, caller=self.caller
        )
        return dataclasses.replace(self, fingerprint=composed)


def prepare(
    operations: Mapping[str, OperationSpec],
    providers: Mapping[str, Provider],
    secret: bytes,
    *,
    tenant: str,
    operation: str,
    key: str,
    params: Any,
    query: str | None = None,
    traceparent: str | None = None,
    caller: str | None = None,
    ordering_key: str | None = None,
    asked_by: str | None = None,
) -> Prepared:
    """Everything about one request. `key` has been parsed; `secret` is the installation's; `caller` is the label of the
    token that it came with; `ordering_key` is given with the request, where the operation names no field for it;
    `asked_by` is the person whom the application names, else the caller.

    Raises BodyInvalid (no exact JSON), ParamsInvalid (refused by the operation), Unrenderable (no provider request
    can be made of it) and ConfigError (no such operation, an ordering key that is not usable).
    """
    known = operations.get(operation)
    if known is None:
        raise ConfigError(f"operations.{operation}: unknown operation. {nearest(operation, operations)}")
    # Nearly all params have their canonical text at once: it is what is stored and what the fingerprint is of.
    written = canonical.plain(params)
    if written is None:
        canonical.check(params)
    known.validate(params)
    if known.card_data == "refuse" and (found := card_data.find(params)):
        raise ParamsInvalid(
            [
                (place, f"this is {what}, which must not be stored: send the provider's token instead")
                for place, what in found
            ]
        )
    ordered = ordering.key_of(operation, params, known.ordering_key, ordering_key)
    ruled, asked_by = approval.ruling(known, params), asked_by if asked_by is not None else caller
    approval.check_asker(known, ruled, asked_by)
    provider = providers[known.provider]
    first = known.steps[0] if known.steps else known
    provider_key = keys.provider_key(secret, tenant, operation, key, step=1, generation=1)
    return Prepared(
        tenant=tenant,
        operation=known,
        key=key,
        fingerprint=fingerprint(known, params, written, query, caller),
        written=written if written is not None else json.dumps(params, ensure_ascii=False, allow_nan=False),
        label=known.label(params),
        provider=provider,
        provider_key=provider_key,
        request=_frozen(first, provider, params, str(provider_key)),
        plan=json.dumps(planned(known, providers)) if known.steps else None,
        traceparent=tracing.valid(traceparent),
        query=query,
        caller=caller,
        ordering_key=ordered,
        approval=None if ruled == "none" else ruled,
        asked_by=None if ruled == "none" or asked_by is None else storable.text(asked_by, approval.NAME_LIMIT),
    )


def fingerprint(
    operation: OperationSpec, params: Any, written: str | None, query: str | None, caller: str | None
) -> str:
    """The fingerprint of a request. `written`: the canonical text of the params, where it is known."""
    owner = caller if operation.key_owner == "label" else None
    left_out, known = operation.fingerprint_without, None if params is None else written
    return fingerprints.of(operation.name, params, left_out, query=query, owner=owner, written=known)


def planned(operation: OperationSpec, providers: Mapping[str, Provider]) -> list[dict[str, Any]]:
    """The plan of a flow, as JSON: what `intents.plan` keeps of it."""
    names = [each.step.name for each in operation.steps if each.step is not None]
    made = []
    for each in operation.steps:
        step, provider = each.step, providers[each.provider]
        assert step is not None
        made.append(
            PlannedStep(
                name=step.name,
                kind=step.kind,
                provider=each.provider,
                account=each.account,
                origin=provider.accounts[each.account].origin,
                replay_window=int(provider.contract.replay_window),
                marks_start=provider.contract.start_mark,
                on_refusal=step.on_refusal,
                completes=step.completes,
                undoes=None if step.undoes is None else names.index(step.undoes) + 1,
            )
        )
    return FlowPlan(tuple(made)).written()


def _frozen(operation: OperationSpec, provider: Provider, params: Any, provider_key: str) -> FrozenRequest | None:
    if operation.step is not None and (operation.step.kind == "local" or operation.step.when is not None):
        return None
    if operation.kind == "inline":
        # It is not sent: it says what was wanted, beside the key by which a proof finds the row.
        return FrozenRequest("INLINE", operation.name, {}, canonical.canonical(params))
    return provider.freeze(_request(operation, params), provider_key)


def _request(operation: OperationSpec, params: Any) -> ProviderRequest:
    try:
        return operation.request_of(params, {})
    except IdemError:
        raise
    except Exception as error:  # the operation's own code: its fault must not look like one of idem's
        raise Unrenderable(
            f"the operation {operation.name} cannot build a request from these params ({type(error).__name__} in the "
            "operation's code)"
        ) from error

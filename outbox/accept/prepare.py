"""The half of accept that needs no database: validate, canonicalise, fingerprint, build and freeze the request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from idem.outbox.domain import fingerprints, keys
from idem.outbox.domain.contract import FrozenRequest, ProviderRequest
from idem.outbox.domain.decisions import Mismatch
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.provider import Provider
from idem.outbox.providers import tracing
from idem.outbox.values import canonical, card_data
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
    request: FrozenRequest
    traceparent: str | None = None
    query: str | None = None
    caller: str | None = None
    """The label of the token that it came with; None: it came from the tenant itself, by the library."""

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
) -> Prepared:
    """Everything about one request. `key` has been parsed; `secret` is the installation's; `caller` is the label of the
    token that it came with.

    Raises BodyInvalid (no exact JSON), ParamsInvalid (refused by the operation), Unrenderable (no provider request
    can be made of it) and ConfigError (no such operation).
    """
    known = operations.get(operation)
    if known is None:
        raise ConfigError(f"operations.{operation}: unknown operation. {nearest(operation, operations)}")
    canonical.check(params)
    known.validate(params)
    if known.card_data == "refuse" and (found := card_data.find(params)):
        raise ParamsInvalid(
            [
                (place, f"this is {what}, which must not be stored: send the provider's token instead")
                for place, what in found
            ]
        )
    provider = providers[known.provider]
    owner = caller if known.key_owner == "label" else None
    provider_key = keys.provider_key(secret, tenant, operation, key, step=1, generation=1)
    return Prepared(
        tenant=tenant,
        operation=known,
        key=key,
        fingerprint=fingerprints.of(operation, params, known.fingerprint_without, query=query, owner=owner),
        written=json.dumps(params, ensure_ascii=False, allow_nan=False),
        label=known.label(params),
        provider=provider,
        provider_key=provider_key,
        request=_frozen(known, provider, params, str(provider_key)),
        traceparent=tracing.valid(traceparent),
        query=query,
        caller=caller,
    )


def _frozen(operation: OperationSpec, provider: Provider, params: Any, provider_key: str) -> FrozenRequest:
    if operation.kind == "inline":
        # It is not sent: it says what was wanted, beside the key by which a proof finds the row.
        return FrozenRequest("INLINE", operation.name, {}, canonical.canonical(params))
    return provider.freeze(_request(operation, params), provider_key)


def _request(operation: OperationSpec, params: Any) -> ProviderRequest:
    try:
        return operation.request(params)
    except IdemError:
        raise
    except Exception as error:  # the operation's own code: its fault must not look like one of idem's
        raise Unrenderable(
            f"the operation {operation.name} cannot build a request from these params ({type(error).__name__} in the "
            "operation's code)"
        ) from error

"""Accept in one round trip, in the caller's transaction: what `Operation.accept` does, on any connection."""

from collections.abc import Mapping
from typing import Any

from idem.application.connections import ConnectionAdapter
from idem.application.misuse import OutOfOrder
from idem.outbox.accept import known_keys
from idem.outbox.accept.accept import ACCEPT, decision, parameters
from idem.outbox.accept.prepare import REFUSED_NOW, prepare
from idem.outbox.domain.decisions import Decision, Limited
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.provider import Provider


def accept(
    adapter: ConnectionAdapter,
    operations: Mapping[str, OperationSpec],
    providers: Mapping[str, Provider],
    secret: bytes,
    *,
    tenant: str,
    operation: str,
    key: str,
    params: Any,
    traceparent: str | None = None,
    ordering_key: str | None = None,
    asked_by: str | None = None,
) -> Decision:
    """The decision about one request. `key` has been parsed, `params` is JSON, `secret` is the installation's.

    A key that is known is decided by what it was accepted under, even if the operation would refuse it now. Raises
    OutOfOrder, BodyInvalid, ParamsInvalid, Unrenderable, ConfigError, Unserved, RetryTransaction and StoreUnavailable.
    """
    known = operations.get(operation)
    try:
        if known is not None and known.kind != "provider":
            raise OutOfOrder(f"{operation} calls no provider: use begin(), reserve() and complete(), or inline()")
        prepared = prepare(
            operations, providers, secret, tenant=tenant, operation=operation, key=key, params=params,
            traceparent=traceparent, ordering_key=ordering_key, asked_by=asked_by,
        )  # fmt: skip
    except (*REFUSED_NOW, OutOfOrder) as refused:
        retry = known_keys.Retry(tenant, operation, key, params)
        return known_keys.decision(known_keys.recall(adapter.row, retry, known), refused)
    while True:
        decided = decision(adapter.row(ACCEPT, parameters(prepared)))
        assert not isinstance(decided, Limited)  # only a caller that sets a limit gets it, and none is set here
        composed = prepared.as_stored(decided)
        if composed is None:
            return decided
        prepared = composed

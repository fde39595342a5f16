"""What a client's request to the user's own endpoint says: its key, its tenant, its fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from idem.application.misuse import Misuse
from idem.outbox.accept.status import RequestIdentity
from idem.outbox.domain import fingerprints, keys
from idem.outbox.domain.decisions import Mismatch
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.values import canonical
from idem.outbox.values.errors import KeyInvalid

NATURAL: Final = frozenset({"PUT", "DELETE"})
"""Methods that are idempotent by themselves (RFC 9110, 9.2.2): their address is their key, if they send none."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """One request of a client. `params`: its body as JSON, where it is that."""

    tenant: str
    operation: OperationSpec
    key: str
    fingerprint: str
    params: Any = None
    traceparent: str | None = None
    wait: float | None = None
    """Seconds for which the client wants to wait (`Prefer: wait`), None: it does not say."""
    address: str | None = None
    query: str | Mapping[str, Any] | None = None

    def as_stored(self, decided: object) -> KeyedRequest | None:
        """The same request with a fingerprint that is composed as that of its key; None: this one is."""
        if not isinstance(decided, Mismatch):
            return None
        # A fingerprint over the bytes of a body that is not JSON leaves nothing out, and the bytes are not kept.
        if not fingerprints.composed_otherwise(decided.fingerprint, self.fingerprint):
            return None
        composed = fingerprints.composed_as(
            decided.fingerprint, self.operation.name, self.params, self.address, self.query
        )
        return dataclasses.replace(self, fingerprint=composed)

    @property
    def identity(self) -> RequestIdentity:
        """By what the tables know it."""
        return self.tenant, self.operation.name, self.key, self.fingerprint


def check_words(*, key: object, tenant: object) -> None:
    """Raises Misuse where the application's own code gives something else than text."""
    for name, given in (("key", key), ("tenant", tenant)):
        if not isinstance(given, str) and not (name == "key" and given is None):
            raise Misuse(
                f"{name} is a {type(given).__name__}: give it as text (str), written the same way at every retry"
            )
    if (fault := keys.tenant_fault(str(tenant))) is not None:
        raise Misuse(f"tenant: {fault}. Name the caller's account by its id, the same at every retry")


def read(
    operation: OperationSpec,
    *,
    tenant: str,
    key: str | None,
    method: str = "POST",
    path: str | None = None,
    query: str | Mapping[str, Any] | None = None,
    body: Any = None,
    traceparent: str | None = None,
    wait: float | None = None,
) -> KeyedRequest:
    """A client's request, checked. `body`: bytes (of JSON, or of anything else), or a JSON value, or None.

    Raises KeyInvalid, and BodyInvalid for JSON that cannot be held exactly.
    """
    if (key is None or not key.strip(" \t")) and method.upper() in NATURAL and path:
        key = natural_key(method, path, query)
    parsed = keys.parse_key(key)
    if not tenant:
        raise KeyInvalid("the tenant is missing: say whose key this is")
    if isinstance(body, bytes):
        fingerprint = keys.raw_fingerprint(operation.name, body, path, query)
        params = None
    else:
        params = body
        if body is not None:
            canonical.check(body)
        fingerprint = fingerprints.of(operation.name, body, operation.fingerprint_without, path, query)
    return KeyedRequest(tenant, operation, parsed, fingerprint, params, traceparent, wait, path, query)


def natural_key(method: str, path: str, query: str | Mapping[str, Any] | None) -> str:
    """The key of a request whose method is idempotent by itself: one for each address."""
    address = keys.fingerprint(method.upper(), None, path, query).encode()
    return f"{method.lower()}-{hashlib.sha256(address).hexdigest()[:32]}"

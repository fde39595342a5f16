"""Reads the status of waiting requests, many of them in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

from idem.outbox.accept import accept
from idem.outbox.domain.decisions import Decision, Limited

KEYS_A_STATEMENT: Final = 1000
"""Keys of which one statement reads the answers, so that a result of large answers fits into memory."""


@dataclass(frozen=True, slots=True)
class AtRest:
    """Proven not executed, and nothing of ours follows: the client's own retry takes it up."""

    intent_id: UUID


RequestIdentity: TypeAlias = tuple[str, str, str, str]
"""Tenant, operation, key and fingerprint."""

Status: TypeAlias = Decision | AtRest

# Subqueries that give one value, so that no plan hashes a whole table for the few rows that are asked for.
ENDED = """
SELECT w.number::integer - 1 AS number
  FROM unnest(CAST(:tenants AS text[]), CAST(:operations AS text[]), CAST(:keys AS text[]))
       WITH ORDINALITY AS w (tenant_id, operation, idempotency_key, number)
  JOIN idem.idempotency_keys k ON k.tenant_id = ANY (ARRAY[w.tenant_id]) AND k.operation = w.operation
                              AND k.idempotency_key = w.idempotency_key
 WHERE CASE k.state
       WHEN 'in_progress' THEN false
       WHEN 'completed'   THEN true
       WHEN 'expired'     THEN true
       WHEN 'failed_retryable'
           THEN (SELECT o.redrive_at FROM idem.outbox o WHERE o.intent_id = k.intent_id) IS NULL
       WHEN 'unknown'
           THEN (SELECT bool_or(d.resolved_at IS NULL AND idem.blocks_retry(d.reason))
                   FROM idem.dead_letters d WHERE d.intent_id = k.intent_id) IS TRUE
       END
"""
"""The requests that have ended or need an operator: their numbers in the arrays."""

STATUS = f"""
SELECT w.number::integer - 1 AS number, {accept.DECIDED}
  FROM unnest(CAST(:tenants AS text[]), CAST(:operations AS text[]), CAST(:keys AS text[]),
              CAST(:fingerprints AS text[]))
       WITH ORDINALITY AS w (tenant_id, operation, idempotency_key, fingerprint, number)
  JOIN idem.idempotency_keys k ON k.tenant_id = ANY (ARRAY[w.tenant_id]) AND k.operation = w.operation
                              AND k.idempotency_key = w.idempotency_key
 CROSS JOIN LATERAL idem.decide(k, w.fingerprint) AS d
"""  # noqa: S608
"""The status of each request; a request that is not here is not committed yet."""


def columns(requests: Sequence[RequestIdentity]) -> dict[str, list[str]]:
    """The parameters of both statements; `ENDED` takes no fingerprints."""
    tenants, operations, keys, fingerprints = (list(column) for column in zip(*requests, strict=True))
    return {"tenants": tenants, "operations": operations, "keys": keys, "fingerprints": fingerprints}


def status_of(row: Any) -> Status:
    """The end in a row of `STATUS`, by the names of its columns."""
    if row.decision == "failed_retryable":
        return AtRest(row.intent_id)
    decided = accept.decision(row)
    assert not isinstance(decided, Limited)  # only a new key can be
    return decided

"""Asks the provider about the outcome that an operator wants to record, before idem writes anything.

A wrong reference would be in the stored answer permanently. So idem asks the provider under the reference, and renders
the answer from the provider's own object. Only with the operator's explicit consent does idem record an outcome that
the provider did not confirm.
"""

from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.calls.lane import Lane
from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.completion import meaning
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.outcomes import (
    Absent,
    CouldNotAsk,
    LookupOutcome,
    Pending,
    Proof,
    Refused,
    Seen,
    Succeeded,
    name,
)
from idem.outbox.domain.provider import Question
from idem.outbox.operator import pause
from idem.outbox.providers import tracing
from idem.outbox.values import clock
from idem.outbox.values.errors import ConfigError, OperatorRefused

PATIENCE: Final = 60.0
"""Seconds to wait for the provider's answer."""
UNCHECKED: Final = "--unchecked"


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The provider's answer. `lookup` None: it could not be asked, and `why_not` says why."""

    lookup: LookupOutcome | None
    seen: Seen
    why_not: str | None = None

    @property
    def object(self) -> Proof | None:
        """The provider's own object, if it showed one."""
        return self.lookup if isinstance(self.lookup, Succeeded | Refused | Pending) else None


CALL = """
SELECT n.operation, o.provider, o.account, o.origin, o.status, o.traceparent, r.method, r.path, r.headers,
       o.provider_reference AS reference,
       idem.known_moment(coalesce(o.first_sent_at, o.imported_sent_at, r.created_at)) AS sent_at,
       extract(epoch FROM statement_timestamp())::float8 AS asked_at,
       (SELECT (d.details -> 'refused') - 'attempt' FROM idem.dead_letters d
         WHERE d.intent_id = n.id AND d.reason = 'partial' AND d.resolved_at IS NULL) AS refused,
       ARRAY(SELECT q.provider_key::text FROM idem.requests q WHERE q.outbox_id = o.id
              ORDER BY q.generation DESC) AS keys
  FROM idem.intents n JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[n.id])
  LEFT JOIN LATERAL (SELECT q.method, q.path, q.headers, q.created_at FROM idem.requests q WHERE q.outbox_id = o.id
                      ORDER BY q.generation DESC LIMIT 1) AS r ON true
 WHERE n.id = %(intent)s
"""


async def ask(connection: AsyncConnection[Any], catalogue: Catalogue, intent: UUID, reference: str | None) -> Confirmed:
    """Ask the provider about an open intent, under this reference (None: under its provider key). Writes nothing.

    It asks only the row's own account and origin. It does not raise for anything that the provider does.
    """
    call = await (await records(connection).execute(CALL, {"intent": intent})).fetchone()
    if call is None:
        return _unasked("it has no open outbox row")
    if call.refused is not None and reference in (None, call.refused["reference"]):
        # The provider has said it already: that is why an operator decides.
        return Confirmed(Refused(**call.refused), Seen(note="the refusal that is on record"))
    provider = catalogue.providers.get(call.provider)
    account = None if provider is None else provider.accounts.get(call.account)
    if provider is None or account is None:
        return _unasked(f"account {call.provider}/{call.account} is not in this configuration")
    if account.origin != call.origin:
        return _unasked(f"it was sent to {call.origin}, but account {call.account} is now at {account.origin}")
    question = Question(
        call.keys[0] if call.keys else "", reference or call.reference, call.status == "awaiting", call.sent_at,
        call.method or "", call.path or "", tuple(call.keys[1:]), call.asked_at, headers=call.headers or {},
    )  # fmt: skip
    if not provider.questions(question):
        return _unasked(f"provider {call.provider} has no look-up that could confirm it")
    if (await pause.read(connection, call.provider, call.account)).lookups:
        return _unasked(f"look-ups of {call.provider} are paused")
    try:
        lane = Lane(provider, account, slots=1, margin=1.0)
    except ConfigError as error:
        return _unasked(f"account {call.provider}/{call.account} cannot be used here: {error}")
    try:
        with tracing.of_row(call.traceparent):
            lookup, seen = await lane.ask(question, lease_ends=clock.boottime() + PATIENCE)
    finally:
        await lane.close()
    if isinstance(lookup, CouldNotAsk):
        what = seen.note or seen.error or (f"HTTP {seen.http_status}" if seen.http_status else "no answer came")
        return Confirmed(None, seen, f"the question failed: {what}")
    return Confirmed(lookup, seen)


def _unasked(why: str) -> Confirmed:
    return Confirmed(None, Seen(), why)


OTHERS = """
SELECT n.id FROM idem.intents n
 WHERE n.provider_reference = %(reference)s AND n.id <> %(intent)s
   AND (n.provider, n.account) = (SELECT o.provider, o.account FROM idem.outbox o WHERE o.intent_id = %(intent)s)
 UNION ALL
SELECT s.intent_id FROM idem.steps s
 WHERE s.provider_reference = %(reference)s AND s.intent_id <> %(intent)s
   AND (s.provider, s.account) = (SELECT o.provider, o.account FROM idem.outbox o WHERE o.intent_id = %(intent)s)
 LIMIT 1
"""


async def of_another(connection: AsyncConnection[Any], intent: UUID, reference: str | None) -> UUID | None:
    """Another intent of the same account that already has this reference."""
    if reference is None:
        return None
    found = await (await connection.execute(OTHERS, {"reference": reference, "intent": intent})).fetchone()
    return None if found is None else UUID(str(found[0]))


def outcome_to_record(
    confirmed: Confirmed,
    wanted: Succeeded | Refused,
    operation: OperationSpec,
    *,
    unchecked: bool,
    other: UUID | None = None,
) -> Succeeded | Refused:
    """The outcome to record: the provider's own object, completed by the operator's values.

    `other`: another intent that has the reference. Raises OperatorRefused if the provider contradicts the operator, or,
    unless `unchecked`, does not answer.
    """
    if unchecked:
        return wanted
    means = _means(confirmed, operation)
    if doubt := against(confirmed, wanted, operation, other):
        instead = f"Look for this intent's own object there ({UNDER_KEY}). " if means is not None and other else ""
        raise OperatorRefused(
            f"nothing was changed: {doubt}. {instead}If you have seen it yourself, {UNCHECKED} records your word, "
            "with your reason"
        )
    assert isinstance(means, Succeeded | Refused)  # `against` names all else
    return replace(means, fields={**wanted.fields, **means.fields}, reference=means.reference or wanted.reference)


UNDER_KEY: Final = "`idem intents show ID` prints its provider key"


def against(
    confirmed: Confirmed, wanted: Succeeded | Refused, operation: OperationSpec, other: UUID | None
) -> str | None:
    """What contradicts an operator's statement, as text; None: the provider says the same."""
    means = _means(confirmed, operation)
    named = "its provider key" if wanted.reference is None else f"reference {wanted.reference}"
    if isinstance(confirmed.lookup, Absent):
        return f"the provider has nothing under {named} (is it misspelt?)"
    match means:
        case None:
            return f"it could not be confirmed: {confirmed.why_not}"
        case Pending():
            return f"the provider has it, and it is not finished (status {means.status or '-'})"
        case Succeeded() | Refused() if type(means) is not type(wanted):
            return (
                f"the provider says {name(means)} (reference {means.reference or '-'}, status {means.status or '-'}), "
                f"but you say {name(wanted)}"
            )
        case _ if None not in (means.reference, wanted.reference) and means.reference != wanted.reference:
            return f"the provider has it under reference {means.reference}, not {wanted.reference}"
        case _ if other is not None:
            return (
                f"reference {wanted.reference} belongs to another intent, {other}, and the answer of that intent "
                "names it"
            )
        case _:
            return None


def _means(confirmed: Confirmed, operation: OperationSpec) -> Proof | None:
    return None if confirmed.object is None else meaning(operation, confirmed.object)


def said(confirmed: Confirmed | None) -> str:
    """The provider's answer, for the evidence."""
    if confirmed is None or confirmed.lookup is None:
        return f"nothing: {'it was not asked' if confirmed is None else confirmed.why_not}"
    return name(confirmed.lookup)

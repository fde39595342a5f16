"""An operator's decision about a call that waits for an approval: show it, ask, then decide about exactly that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from idem.cli.base import opening
from idem.cli.base.option_groups import OperatorOptions
from idem.cli.base.options import confirm
from idem.cli.base.output import age, as_json, say, text
from idem.outbox.values.errors import OperatorRefused

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from idem.outbox.operator.id_prefixes import Prefix
    from idem.outbox.operator.snapshot import Snapshot


async def approve(options: OperatorOptions, prefix: Prefix | UUID, reason: str) -> None:
    """Approve it. Raises OperatorRefused."""
    from idem.outbox.operator import approvals, guards

    async with opening.deciding(options.config) as (connection, catalogue):
        intent, held = await _shown(connection, prefix, lambda row: guards.against_approve(row, options.operator))
        terms = catalogue.of(held.row)
        left = max(held.row.start_left, 0.0 if terms is None else terms.operation.patience)
        say(
            f"approve: queues it for {held.row.provider}/{held.row.account}; the call may start within "
            f"{guards.seconds(left)} from now"
        )
        confirm("Approve it?", yes=options.yes)
        done = await approvals.approve(
            connection, catalogue, intent, by=options.operator, reason=reason, version=held.row.version
        )
    _told(options, done, f"intent {intent} is approved, and {done.status}")


async def reject(options: OperatorOptions, prefix: Prefix | UUID, reason: str, *, sure: bool) -> None:
    """Reject it. Raises OperatorRefused."""
    from idem.outbox.operator import approvals, guards

    async with opening.deciding(options.config) as (connection, catalogue):
        intent, held = await _shown(connection, prefix, lambda row: guards.against_reject(row, sure=sure))
        answer = await approvals.rejected_answer(connection, catalogue, intent)
        say(f"reject: it is never sent, and its key answers {answer.status} from now on ({len(answer.body)} bytes)")
        confirm("Reject it?", yes=options.yes)
        done = await approvals.reject(
            connection, catalogue, intent, by=options.operator, reason=reason, version=held.row.version, answer=answer,
            know_it_did_not_happen=sure,
        )  # fmt: skip
    _told(options, done, f"intent {intent} is rejected")


async def _shown(
    connection: AsyncConnection[Any], prefix: Prefix | UUID, against: Callable[[Snapshot], str | None]
) -> tuple[UUID, Snapshot]:
    """The intent and its row, as they were shown. Raises OperatorRefused."""
    from idem.outbox.domain.states import KeyState
    from idem.outbox.operator import id_prefixes, listing, locking

    intent = await id_prefixes.intent(connection, prefix)
    found, held = await listing.intent(connection, intent), await locking.snapshot(connection, intent)
    if found is None:
        raise locking.no_such(intent)
    if held is None:
        raise OperatorRefused(f"intent {intent}: {locking.why_ended(KeyState(found['state']))}")
    say(
        f"intent {intent}: {found['operation']} of tenant {found['tenant_id']}, {text(found['label'] or 'no label')}, "
        f"asked by {text(found['asked_by'] or 'an unknown person')}, {held.row.status} for {age(held.row.status_age)}, "
        f"version {held.row.version}"
    )
    if (why_not := against(held)) is not None:
        raise OperatorRefused(why_not)
    return intent, held


def _told(options: OperatorOptions, done: Any, said: str) -> None:
    if options.as_data:
        as_json(asdict(done))
    else:
        typer.echo(said)

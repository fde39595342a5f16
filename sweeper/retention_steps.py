"""The kinds of rows that retention takes away, each as a step: one batch of one kind."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.settle.change_pages import Place
from idem.sweeper import history, records, tenant_counts
from idem.sweeper.abandoned import delete_rows
from idem.sweeper.due_retention import due_retention
from idem.sweeper.expired_keys import prune_keys
from idem.sweeper.history import HistoryWalk

DAY = 86400.0

RetentionStep: TypeAlias = Callable[[AsyncConnection[Any]], Awaitable[bool]]
"""One batch of one kind of work; whether that kind is done for this pass."""


@dataclass(slots=True)
class Retention:
    """The steps of one pass, which count what they did into `done`. `walk` lasts for longer than a pass."""

    catalogue: Catalogue
    settings: SweeperSettings
    done: Counter[str]
    walk: HistoryWalk
    keys_at: Place = field(default_factory=Place)
    rest_at: Place = field(default_factory=Place)

    def steps(self, *, history_too: bool) -> dict[str, RetentionStep]:
        """By name. `history_too`: with the walks over what is kept for long."""
        settings = self.settings

        def older(what: str, delete: Callable[..., Awaitable[int]], age: float) -> RetentionStep:
            return self._delete(what, partial(delete, age=age))

        often = {
            "keys": self._keys,
            "webhook bodies": older("webhook_bodies", history.delete_webhook_bodies, settings.webhook_body_retention),
            "webhook events": older("webhook_events", history.delete_webhook_events, self._events_are_kept),
            "provider answers": older("provider_answers", history.delete_answers, settings.provider_answer_retention),
            "daemons": older("daemons", history.delete_daemons, settings.daemon_retention),
            "tenants": self._counts,
            "tenants' decisions": self._decisions,
            "tenants' hours": self._delete("tenant_hours", tenant_counts.delete_usage),
            "tenants' counts": self._delete(None, tenant_counts.forget_counts),
        }
        seldom = {
            "history": self._history,
            "rows at rest": self._at_rest,
            "dead letters": self._delete("dead_letters", records.delete_dead_letters),
            "lane changes": self._delete("lane_changes", records.delete_lane_changes),
            "handlers": self._delete("handler_work", records.forget_handlers),
        }
        return often | seldom if history_too else often

    async def due(self, connection: AsyncConnection[Any]) -> frozenset[str]:
        """Those that are made often and may find something, by one statement."""
        settings = self.settings
        return await due_retention(
            connection,
            bodies=settings.webhook_body_retention,
            events=self._events_are_kept,
            answers=settings.provider_answer_retention,
            daemons=settings.daemon_retention,
        )

    async def _keys(self, connection: AsyncConnection[Any]) -> bool:
        ttl = self.settings.tombstone_ttl
        batch = self.settings.batch
        self.done.update(await prune_keys(connection, batch=batch, tombstone_ttl=ttl, place=self.keys_at))
        return self.keys_at.over

    async def _at_rest(self, connection: AsyncConnection[Any]) -> bool:
        ttl = self.settings.tombstone_ttl
        self.done["abandoned"] += await delete_rows(
            connection, batch=self.settings.batch, tombstone_ttl=ttl, place=self.rest_at
        )
        return self.rest_at.over

    async def _history(self, connection: AsyncConnection[Any]) -> bool:
        self.done.update(await history.prune_history(connection, batch=self.settings.batch, walk=self.walk))
        return self.walk.over

    async def _counts(self, connection: AsyncConnection[Any]) -> bool:
        """Move the marks on, and count one tenant's keys at a time."""
        moved = await tenant_counts.move_marks(connection, batch=self.settings.batch)
        return not await tenant_counts.count_keys(connection) and moved < self.settings.batch

    async def _decisions(self, connection: AsyncConnection[Any]) -> bool:
        batch = 10 * self.settings.batch
        return await tenant_counts.add_decisions(connection, batch=batch) < batch

    def _delete(self, what: str | None, delete: Callable[..., Awaitable[int]]) -> RetentionStep:
        async def step(connection: AsyncConnection[Any]) -> bool:
            gone = await delete(connection, batch=self.settings.batch)
            if what is not None:
                self.done[what] += gone
            return gone < self.settings.batch

        return step

    @property
    def _events_are_kept(self) -> float:
        # As long as a provider may send one again: by the event that is kept its repetition is known.
        redelivery = [provider.contract.event_rule.redelivery + DAY for provider in self.catalogue.providers.values()]
        return max(self.settings.webhook_retention, *redelivery, 0.0)

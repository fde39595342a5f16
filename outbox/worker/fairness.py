"""Fair shares of a lane: while rows are queued, every claim goes round the tenants, so that no bulk run delays others.

A queue that a claim can empty is served in the order of its rows, by one index scan: nobody waits, and an idle poll
costs nothing more. Only after a claim that took all it was allowed to take may a tenant be waiting. A fair share is no
use to a tenant that must wait for other tenants' calls to end: the last free call of a shared lane is kept for tenants
that hold none.
"""

from collections.abc import Sequence
from uuid import uuid4

from idem.outbox.worker.queue_position import Pace, QueuePosition

WIDTH = 100
"""Tenants that one claim looks at, of which those count whose first row is due: bounds what it costs, about 15
microseconds for each, when thousands of tenants wait for their back-off."""

ALONE = 0.1
"""Seconds for which a tenant that was alone in the last round is served without one, or longer where rounds take long
(`Pace`): so long may another tenant wait for its turn."""

SHARED = 600.0
"""Seconds for which a lane counts as shared after it was seen to be: a slot is kept free in it meanwhile."""


def round_of_tenants(
    status: str, *, lane: str = "", held: str = "", room: str, claimable: str, columns: str, order: str, rest: str
) -> str:
    """The clauses that lock rows of this status for all tenants in turn, for a statement WITH RECURSIVE.

    1. `visited` goes from tenant to tenant, in a ring that begins after %(after)s. It stops after %(turns)s tenants, or
       when as many of them have a due row as there is `room`.
    2. `in_turn` locks for each of these its part of the room; the first ones get what is left over.
    3. `rest` rows of what they do not use go to the rows that have waited longest.

    So a bulk run of one tenant delays no other. Only rows that are claimed are locked, and they are `claimable` (a
    condition on a row `c`). `lane`: more of the ring's condition on a row `o`; `held`: a condition that leaves a tenant
    out; `columns`: of a row `c`. The ring names the status as its index does, so that the planner uses no other index.
    """
    return f"""visited (tenant_id, due, found, number, wrapped) AS (
    SELECT %(after)s::text COLLATE "C", false, 0, 0, false
    UNION ALL
    SELECT t.tenant_id, d.due, v.found + d.due::integer, v.number + 1, t.wrapped
      FROM visited v CROSS JOIN LATERAL (
           (SELECT o.tenant_id, o.available_at <= statement_timestamp() AS due_now, v.wrapped FROM idem.outbox o
             WHERE o.status || '' = '{status}'{lane}
               AND o.tenant_id > v.tenant_id
             ORDER BY o.tenant_id, o.available_at, o.id LIMIT 1)
           UNION ALL
           (SELECT o.tenant_id, o.available_at <= statement_timestamp(), true FROM idem.outbox o
             WHERE o.status || '' = '{status}'{lane}
               AND o.tenant_id <= %(after)s AND NOT v.wrapped
             ORDER BY o.tenant_id, o.available_at, o.id LIMIT 1)
           LIMIT 1) t
           CROSS JOIN LATERAL (SELECT t.due_now{held} AS due) d
     WHERE v.number < %(turns)s::integer AND v.found < {room}
       AND NOT (t.wrapped AND t.tenant_id > %(after)s)
), round AS MATERIALIZED (
    SELECT {room} AS room, max(v.found) AS sharers, max(v.number) AS number FROM visited v
), in_turn AS MATERIALIZED (
    SELECT {columns}
      FROM round a CROSS JOIN visited v CROSS JOIN LATERAL (
           SELECT {columns} FROM idem.outbox c
            WHERE {claimable}
              AND c.status || '' = '{status}'
              AND c.tenant_id >= v.tenant_id AND (c.tenant_id, c.available_at) <= (v.tenant_id, statement_timestamp())
            ORDER BY c.tenant_id, c.available_at, c.id
            LIMIT a.room / a.sharers + (v.found <= a.room %% a.sharers)::integer
              FOR UPDATE OF c SKIP LOCKED) c
     WHERE v.due
), longest AS MATERIALIZED (
    SELECT {columns} FROM idem.outbox c
            WHERE {claimable}
              AND c.status = '{status}'
              AND c.id <> ALL (ARRAY(SELECT id FROM in_turn))
            ORDER BY {order}
            LIMIT {rest}
              FOR UPDATE OF c SKIP LOCKED
)"""  # noqa: S608


# Of the round `a`: the tenant that was served last.
LAST_SERVED = """(SELECT v.tenant_id FROM visited v
         WHERE CASE WHEN a.number < %(turns)s::integer AND a.sharers > 0 AND a.room %% nullif(a.sharers, 0) > 0
                    THEN v.due AND v.found = a.room %% a.sharers ELSE v.number = a.number END) AS after"""


# Of the round `a`: how many tenants with due rows it has met; NULL: it did not come all the way round.
SHARERS = "CASE WHEN a.sharers < a.room AND a.number < %(turns)s::integer THEN a.sharers END AS sharers"


class TenantRound:
    """One worker's position in the round of the tenants of one lane, and whether it keeps a call free for others.

    `after`: the tenant that was served last. `queued`: the last claim took all that it was allowed to take. `others`:
    tenants without a call may be waiting for the call that is kept free (`ClaimGate.wait` sets it). `denied`: that call
    was in use at the last claim for it, so that the next call that ends may be theirs. Times are on one clock, in
    seconds.
    """

    def __init__(self) -> None:
        # Each worker begins somewhere else, as far as the names of tenants let it.
        self.after = uuid4().hex
        self.queued = False
        self.others = False
        self.denied = False
        self.position = QueuePosition()
        self._round_due = 0.0
        self._pace = Pace(ALONE)
        self._whose: str | None = None
        self._shared_until: float | None = None

    @property
    def width(self) -> int:
        """How many tenants the next claim looks at; 0: it takes what has waited longest, of any tenant."""
        return WIDTH if self.queued else 0

    def keep(self, now: float, calls: int) -> int:
        """How many of `calls` at a time stay free for tenants that hold none: one, while tenants share the lane.

        The only tenant of a lane has all of it, and a lane of one call at a time has none to keep.
        """
        return int(self._shared_until is not None and now < self._shared_until and calls > 1)

    def goes_round(self, now: float) -> bool:
        """Whether the next claim goes round the tenants: while rows are queued, unless the last round, a moment ago,
        has met one tenant alone."""
        return self.queued and now >= self._round_due

    def claimed(self, whose: Sequence[str], now: float, room: int, after: str | None = None) -> None:
        """A claim took rows of these tenants, of the `room` that limit, fleet and pause left it."""
        self._see(whose, now)
        self.queued = len(whose) >= room
        self.after = after or self.after

    def went_round(self, sharers: int | None, now: float, took: float) -> None:
        """A round met so many tenants with due rows (None: it was not made to its end); it took so many seconds."""
        alone = sharers is not None and sharers <= 1
        pause = self._pace.after(took)
        self._round_due = now + pause if alone else 0.0

    def claimed_spare(self, whose: Sequence[str], now: float, room: int, after: str) -> None:
        """A claim for the others took rows of these tenants, of the `room` that fleet and pause left it."""
        self._see(whose, now)
        self.others = bool(whose)
        self.denied = room == 0
        self.after = after

    def _see(self, whose: Sequence[str], now: float) -> None:
        for tenant in whose:
            if self._whose not in (None, tenant):
                self._shared_until = now + SHARED
            self._whose = tenant

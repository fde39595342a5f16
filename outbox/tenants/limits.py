"""Limits and counts what one tenant uses of one process: in memory, written and refreshed beside the requests.

A limit never refuses a known key: the caller passes to accept whether a new key is allowed, and accept decides.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.daemon.retry import RetryLoop, wait
from idem.outbox.database.pool import AWAY, REFUSED, Database, time_limited
from idem.outbox.observe import telemetry
from idem.outbox.tenants import key_counts, usage
from idem.outbox.tenants.usage import TenantCounter

__all__ = ["LimitWait", "TenantCounter", "TenantLimits"]

INTERVAL: Final = 2.0
"""Seconds between two times at which counts are written and active keys are looked at."""

BELIEVED: Final = 30.0
"""Seconds for which a number of active keys is believed. Without a newer one the limit does not hold."""

UNTIL_KEYS_EXPIRE: Final = 60.0
"""Seconds after which a tenant with too many active keys may ask again: nobody knows when its next key expires."""

KEYS_TEXT: Final = "Your account creates new keys faster than its limit allows."


@dataclass(frozen=True, slots=True)
class LimitWait:
    """A new key is not allowed now: for how many seconds, by which limit, and the text for the client."""

    seconds: float
    limit: Literal["new_keys", "active_keys"]
    text: str


class Bucket:
    """A token bucket: `burst` at once, `rate` a second."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate, self._burst = rate, float(burst)
        self._left, self._at = self._burst, now

    def wait(self, now: float) -> float:
        """Seconds until one can be taken; 0: now."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (1.0 - self._left) / self._rate)

    def consume(self, now: float) -> None:
        """Take one."""
        self.wait(now)
        self._left -= 1.0

    def give_back(self, now: float) -> None:
        """Give back one that was taken and not used."""
        self.wait(now)
        self._left = min(self._burst, self._left + 1.0)

    def full(self, now: float) -> bool:
        """Nothing of it is used, so it is as good as a new one."""
        self.wait(now)
        return self._left >= self._burst


@dataclass(slots=True)
class Keys:
    """The active keys of a tenant as last seen, those that this process made since, those that it may be making now,
    and when a request last asked."""

    limit: int
    seen: int = 0
    seen_at: float | None = None
    made: int = 0
    making: int = 0
    asked_at: float = 0.0


class TenantLimits:
    """The limits and counts of all tenants, in one process. Memory grows with the tenants that are busy, no more."""

    def __init__(
        self, database: Database, settings: ApiSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._requests: dict[str, Bucket] = {}
        self._new_keys: dict[str, Bucket] = {}
        self._keys: dict[str, Keys] = {}
        self._counts: dict[str, Counter[TenantCounter]] = {}

    def admit(self, tenant: str) -> float | None:
        """Take a request of a tenant's, or say after how many seconds it may come."""
        limits, now = self._settings.limits_of(tenant), self._clock()
        if limits.requests is None:
            return None
        bucket = self._requests.get(tenant)
        if bucket is None:
            bucket = self._requests[tenant] = Bucket(limits.requests, limits.request_burst, now)
        if (seconds := bucket.wait(now)) > 0:
            return seconds
        bucket.consume(now)
        return None

    def may_create(self, tenant: str) -> LimitWait | None:
        """Reserve a new key for a tenant, or say which limit forbids it. A reservation ends with `created` or
        `not_created`.

        It is taken before the key is known to be new: requests at once must not all see the same one left.
        """
        limits, now = self._settings.limits_of(tenant), self._clock()
        bucket = self._new_keys.get(tenant)
        if bucket is None and limits.new_keys is not None:
            bucket = self._new_keys[tenant] = Bucket(limits.new_keys, limits.new_key_burst, now)
        if bucket is not None and (seconds := bucket.wait(now)) > 0:
            return LimitWait(seconds, "new_keys", KEYS_TEXT)
        if limits.active_keys is not None:
            keys = self._keys.setdefault(tenant, Keys(limits.active_keys))
            keys.asked_at = now
            known = keys.seen_at is not None and now - keys.seen_at <= BELIEVED
            if known and keys.seen + keys.made + keys.making >= keys.limit:
                text = f"Your account may have {keys.limit} unexpired keys, and has reached that limit."
                return LimitWait(UNTIL_KEYS_EXPIRE, "active_keys", text)
            keys.making += 1
        if bucket is not None:
            bucket.consume(now)
        return None

    def created(self, tenant: str) -> None:
        """A new key that was taken was accepted."""
        if (keys := self._keys.get(tenant)) is not None:
            keys.making -= 1
            keys.made += 1

    def not_created(self, tenant: str) -> None:
        """A new key that was taken was a known one, or could not be written."""
        if (keys := self._keys.get(tenant)) is not None:
            keys.making -= 1
        if (bucket := self._new_keys.get(tenant)) is not None:
            bucket.give_back(self._clock())

    def count(self, tenant: str, what: TenantCounter) -> None:
        """Count something of a tenant's."""
        self._counts.setdefault(tenant, Counter())[what] += 1

    async def run(self, stop: asyncio.Event) -> None:
        """Write counts down and look at active keys every few seconds, until `stop`; once more then.

        An outage is waited out: what was counted meanwhile is written afterwards.
        """
        retry = RetryLoop("api limits", daemon="api limits", doing="writing counts and looking at active keys")
        bound = self._database.timeouts.silence()

        async def step() -> None:
            self._forget()
            await time_limited(bound, self.refresh())
            await time_limited(bound, self.flush())
            retry.over()

        while not await wait(stop, INTERVAL):
            await retry.attempt(step, stop)
        try:
            await time_limited(bound, self.flush())
        except (*AWAY, *REFUSED):
            pass
        except Exception as error:
            telemetry.broken("api limits", error, "writing the last counts")

    async def flush(self) -> None:
        """Write the counts in one statement for all tenants. Raises what an unreachable database raises.

        If the answer to it is lost, the same is written again: counts for people may be some too many.
        """
        counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            async with self._database.connection() as connection:
                for tenant in await usage.add(connection, counts):
                    del counts[tenant]
        finally:
            for tenant, each in counts.items():
                self._counts.setdefault(tenant, Counter()).update(each)

    async def refresh(self) -> None:
        """Look at the active keys of tenants that have such a limit and made a key, or wanted to, since the last look.

        Raises what an unreachable database raises.
        """
        began = self._clock()
        due = {
            tenant: keys for tenant, keys in self._keys.items() if keys.seen_at is None or keys.asked_at >= keys.seen_at
        }
        if not due:
            return
        made = {tenant: keys.made for tenant, keys in due.items()}
        async with self._database.connection() as connection:
            found = await key_counts.active(connection, {tenant: keys.limit for tenant, keys in due.items()})
        for tenant, active in found.items():
            keys = due[tenant]
            # What was made before the statement is in its answer; what was made meanwhile may be in both, until the
            # next look.
            keys.seen, keys.seen_at, keys.made = active.keys, began, keys.made - made[tenant]

    def _forget(self) -> None:
        now = self._clock()
        for buckets in (self._requests, self._new_keys):
            for tenant in [tenant for tenant, bucket in buckets.items() if bucket.full(now)]:
                del buckets[tenant]
        for tenant in [
            tenant for tenant, keys in self._keys.items() if not keys.making and now - keys.asked_at > BELIEVED
        ]:
            del self._keys[tenant]

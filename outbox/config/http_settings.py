"""The settings of the two HTTP servers: `[api]` with its limits, and `[webhooks]` for providers' events."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from idem.outbox.values.canonical import MAX_BYTES
from idem.outbox.values.settings_base import Duration, Section

MOST_VALUES: Final = 50_000
"""What json.loads reads in less than 10 ms, during which no other thread of the process runs. A provider's answers may
have more (`canonical.MAX_VALUES`): no client sends them."""


Port: TypeAlias = Annotated[
    int,
    Field(
        ge=0,
        le=65535,
        description="Port to listen on; default 8080 for the API and 8081 for webhooks, 0 any free port.",
    ),
]
Pool: TypeAlias = Annotated[
    int,
    Field(
        ge=1,
        le=500,
        description="Connections of one process to the database; default 10 for the API and 6 for webhooks.",
    ),
]


class ListenSettings(Section):
    """What every HTTP server of idem has: its address, and its connections to the database."""

    host: str = "127.0.0.1"
    """Address to listen on; default 127.0.0.1, this machine alone. Change it behind a proxy or in a container."""
    port: Port = 8080
    pool: Pool = 10
    timeout: Duration = Field(default=5.0, gt=0)
    """Seconds within which the database must answer; default 5s, then the sender gets 503 and sends again. One
    connection, one lock and one statement may each take as long."""


class TenantLimitSettings(Section):
    """What one tenant may use. Rates are those of one API process: divide what the fleet may take by their number."""

    requests: float | None = Field(default=None, gt=0)
    """Requests a second of one tenant, to one process; default no limit. Set limits where a tenant is not trusted."""
    request_burst: int = Field(default=50, ge=1)
    """Requests that may come at once before the rate counts; default 50."""
    new_keys: float | None = Field(default=None, gt=0)
    """New keys a second of one tenant, at one process; default no limit. Retries of a known key are never refused by
    it."""
    new_key_burst: int = Field(default=50, ge=1)
    """New keys that may come at once before the rate counts; default 50."""
    active_keys: int | None = Field(default=None, ge=1)
    """Keys of one tenant that have not expired, in the whole installation; default no limit. Only the API refuses by
    it. A process counts its own new keys at once, and those of other processes, the library and SQL every 2 s. A tenant
    that made no key at a process for 30 s is not limited there for the first 2 s."""


class ApiSettings(ListenSettings):
    """The HTTP API: where clients meet idem."""

    poll: ClassVar[float] = 0.25
    """Seconds between two checks of what is being waited for. One statement serves all waiters."""

    profile: Literal["ietf", "stripe"] = "ietf"
    """How a key that was used for other content is refused: "ietf" (default) 422, as the draft says, "stripe" 400, as
    Stripe's clients expect."""
    wait_cap: Duration = Field(default=30.0, ge=0)
    """Longest wait in seconds that a client may ask for with `Prefer: wait`; default 30s, below the idle timeout of
    most proxies."""
    max_body: int = Field(default=65_536, ge=1, le=MAX_BYTES)
    """Largest body of a request in bytes; default 64 kB, at most 1 MiB. A larger one gets 413. A known key keeps its
    answer: its body may have 1 MiB."""
    max_values: int = Field(default=10_000, ge=1, le=MOST_VALUES)
    """Most values of a body, the names of members counted too; default 10000, at most 50000. What a body costs is their
    number. The body of a known key may have 50000."""
    strict_keys: bool = False
    """Whether only quoted keys are accepted, as the draft has them; default false: the bare spelling is the same key. A
    known key is accepted in both spellings."""
    min_key_length: int = Field(default=1, ge=1, le=255)
    """Fewest characters of a new key; default 1. 16 or more refuse counters and dates, which two clients may choose
    alike."""
    token_cache: Duration = Field(default=10.0, ge=0)
    """Seconds for which a process trusts a token that it has looked up; default 10s: a revoked token works for as
    long."""
    metrics: bool = True
    """Whether the clients' port answers GET /metrics; default true. Switch it off where strangers reach that port, and
    use `--metrics-port`."""
    openapi: bool = True
    """Whether the clients' port answers GET /openapi.json; default true."""
    drain: Duration = Field(default=0.0, ge=0)
    """Seconds between SIGTERM, when /readyz begins to fail, and the end of listening; default 0s. Set it to what your
    load balancer needs to notice."""
    limits: TenantLimitSettings = TenantLimitSettings()
    """What one tenant may use."""
    tenants: dict[str, TenantLimitSettings] = Field(default_factory=dict)
    """Limits of single tenants, by name, instead of api.limits; default none."""

    def limits_of(self, tenant: str) -> TenantLimitSettings:
        """The limits that hold for a tenant."""
        return self.tenants.get(tenant, self.limits)


class EndpointSettings(ListenSettings):
    """Where providers' events come in: `idem webhooks run`, and the same paths of `idem api run`."""

    read_timeout: ClassVar[float] = 15.0
    """Seconds within which the body of an event must be there: providers send from data centers."""
    max_unverified: ClassVar[int] = 33_554_432
    """Bytes of bodies that one process holds at once before it has checked their signatures: 16 of the largest."""

    port: Port = 8081
    pool: Pool = 6
    max_body: int = Field(default=1_048_576, ge=1024, le=2_097_152)
    """Largest body of an event in bytes; default 1 MiB, ten times what providers send; at most 2 MiB."""

"""The settings of the endpoint for providers' events: `[webhooks]` in idem.toml, `IDEM_WEBHOOKS_…`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from idem.outbox.values.settings_base import Duration, Section


class EndpointSettings(Section):
    """Where providers' events come in: `idem webhooks run`, and the same paths of `idem api run`."""

    read_timeout: ClassVar[float] = 15.0
    """Seconds within which the body of an event must be there: providers send from data centers."""
    max_unverified: ClassVar[int] = 33_554_432
    """Bytes of bodies that one process holds at once before it has checked their signatures: 16 of the largest."""

    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; default 127.0.0.1, this machine alone. Whoever deploys it behind a proxy "
        "or in a container changes it.",
    )
    port: int = Field(
        default=8081,
        ge=0,
        le=65535,
        description="Port to listen on; default 8080 for the API and 8081 for webhooks, 0 any free port.",
    )
    pool: int = Field(
        default=6,
        ge=1,
        le=500,
        description="Connections of one process to the database; default 10 for the API and 6 for webhooks.",
    )
    timeout: Duration = Field(
        default=5.0,
        gt=0,
        description="Seconds within which the database must answer; default 5s, then the sender gets 503 and sends "
        "again. One connection, one lock and one statement may each take as long.",
    )
    max_body: int = Field(
        default=1_048_576,
        ge=1024,
        le=2_097_152,
        description="Largest body of an event in bytes; default 1 MiB, ten times what providers send; at most 2 MiB.",
    )

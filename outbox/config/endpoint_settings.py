"""The settings of the endpoint for providers' events: `[webhooks]` in idem.toml, `IDEM_WEBHOOKS_…`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from idem.outbox.config.api_settings import ListenSettings, Pool, Port


class EndpointSettings(ListenSettings):
    """Where providers' events come in: `idem webhooks run`, and the same paths of `idem api run`."""

    read_timeout: ClassVar[float] = 15.0
    """Seconds within which the body of an event must be there: providers send from data centers."""
    max_unverified: ClassVar[int] = 33_554_432
    """Bytes of bodies that one process holds at once before it has checked their signatures: 16 of the largest."""

    port: Port = 8081
    pool: Pool = 6
    max_body: int = Field(
        default=1_048_576,
        ge=1024,
        le=2_097_152,
        description="Largest body of an event in bytes; default 1 MiB, ten times what providers send; at most 2 MiB.",
    )

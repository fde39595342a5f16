"""What a group of daemons shares: one folder of metrics, one record of those that died, one shutdown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from idem.cli.group.children import Children
from idem.cli.group.dead_daemons import DeadDaemons
from idem.cli.group.metrics_folder import metrics_folder
from idem.cli.group.stopping import Stop
from idem.cli.group.supervisor import GroupSupervisor
from idem.outbox.http_server.serving import GRACE
from idem.outbox.observe import metrics

if TYPE_CHECKING:
    from idem.outbox.config import Configuration
    from idem.outbox.database.address import Address

LONGEST_RESTART = 30.0
"""Longest wait in seconds before the restart of a daemon that exits repeatedly."""
SPARE = 5.0


@contextlib.contextmanager
def gathered(
    environment: Mapping[str, str], address: Address, stop: Stop, *, stop_timeout: float, grace: float
) -> Iterator[GroupSupervisor]:
    """A supervisor without daemons yet; at the end none of its daemons is left.

    `stop_timeout`: seconds to finish running calls at the end; `grace`: the same if the supervisor is killed.
    """
    with (
        metrics_folder() as folder,
        DeadDaemons(address) as dead_daemons,
        Children(
            {**environment, **({metrics.DIRECTORY: folder} if folder else {})},
            grace=grace,
            longest_wait=LONGEST_RESTART,
        ) as children,
    ):
        stop.hold()
        yield GroupSupervisor(children, dead_daemons, stop, stop_timeout)


def stop_timeout(found: Configuration) -> float:
    """Seconds within which every running call and request of this configuration ends: no call outlives its lease."""
    settings = found.settings
    return max(settings.worker.lease, settings.reconciler.lease, settings.api.drain + GRACE) + SPARE

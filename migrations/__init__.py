"""The history of idem's schema, and how it gets into a database: `idem db upgrade`, or a revision of the user's own.

A revision imports nothing of idem: it must still run when today's code is gone. The names of this package are for
somebody else's Alembic; they are handed on lazily, so that importing it loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idem.migrations.inside import include_name, upgrade_in
    from idem.migrations.runner import MigrationError

_NAMES = {
    "MigrationError": "idem.migrations.runner",
    "include_name": "idem.migrations.inside",
    "upgrade_in": "idem.migrations.inside",
}

__all__ = ["MigrationError", "include_name", "upgrade_in"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'idem.migrations' has no attribute {name!r}")

"""The revisions of idem's schema, and how to apply them: `idem db upgrade`, or a revision in the user's own Alembic.

A revision imports nothing of idem: it must still run when today's code is gone. The names of this package are for the
user's Alembic; they are imported lazily, so that importing the package loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idem.migrations.inside import include_name, upgrade_in
    from idem.migrations.runner import MigrationError

__all__ = ["MigrationError", "include_name", "upgrade_in"]


def __getattr__(name: str) -> Any:
    if name in ("include_name", "upgrade_in"):
        from idem.migrations import inside

        return getattr(inside, name)
    if name == "MigrationError":
        from idem.migrations.runner import MigrationError

        return MigrationError
    raise AttributeError(f"module 'idem.migrations' has no attribute {name!r}")

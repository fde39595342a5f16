"""The revision of the schema that this program needs, without Alembic: a daemon's start asks for nothing else."""

from typing import Final

HEAD: Final = "0001"
"""The newest revision in `versions`."""

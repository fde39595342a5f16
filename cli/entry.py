"""The command `idem` as it is installed: it needs more than the library does, and says so where that is not there."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from idem.cli.failures import USAGE

PACKAGES: Final = (
    "alembic",
    "apscheduler",
    "certifi",
    "cryptography",
    "h11",
    "httpx",
    "prometheus_client",
    "psycopg",
    "psycopg_pool",
    "rich",
    "starlette",
    "structlog",
    "typer",
    "uvicorn",
)
"""What the extra `daemon` brings, by the names that are imported."""


def main() -> int:
    """Run a command; its exit code. One line and `USAGE` where the extra `daemon` is not installed."""
    if absent := [name for name in PACKAGES if find_spec(name) is None]:
        sys.stderr.write(
            f"idem: the command and the daemons need {', '.join(absent)}: install idem with the extra `daemon` "
            '(in a clone: pip install ".[daemon]"). An application that only accepts needs neither.\n'
        )
        return USAGE
    from idem.cli.main import main as run

    return run()

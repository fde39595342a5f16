"""The installed command `idem`. It needs more packages than the library, and names those that are missing."""

import sys
from importlib.util import find_spec
from typing import Final

from idem.cli.base.failures import USAGE

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
    "sniffio",
    "starlette",
    "structlog",
    "typer",
    "uvicorn",
)
"""The packages of the extra `daemon`, by import name."""


def main() -> int:
    """Run a command and return its exit code; one line and `USAGE` if the extra `daemon` is not installed."""
    if absent := [name for name in PACKAGES if find_spec(name) is None]:
        sys.stderr.write(
            f"idem: the command and the daemons need {', '.join(absent)}: install idem with the extra `daemon` "
            '(in a clone: pip install ".[daemon]"). An application that only accepts needs neither.\n'
        )
        return USAGE
    from idem.cli.main import main as run

    return run()

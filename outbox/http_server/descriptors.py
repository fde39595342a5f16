"""How many files and connections a process may have open (RLIMIT_NOFILE), and what is left of them for clients."""

import resource
from pathlib import Path
from typing import Final

WANTED: Final = 65_536
"""What a process asks for, where the hard limit lets it: distributions start it with a soft limit of 1024."""

SPARE: Final = 24
"""Descriptors that are left for files, name look-ups and the log."""

MOST: Final = 10_000
"""Connections of one process at most."""
LEAST: Final = 4

LIMIT_TEXT: Final = "the process has no file descriptor left; raise its limit (LimitNOFILE, ulimit -n)"


def raise_limit() -> int:
    """Raise the soft limit of this process and of those that it starts; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST + SPARE if soft == resource.RLIM_INFINITY else soft


def room(reserved: int = 0) -> int:
    """Connections of clients that this process may hold, beside `reserved` of its own that are still to be opened."""
    limit = raise_limit()
    return max(LEAST, min(MOST, limit - _used() - reserved - SPARE))


def _used() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return SPARE

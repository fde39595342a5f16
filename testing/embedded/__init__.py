"""The embedded PostgreSQL: a private server, shared by all processes that use the same folder.

    with acquire(".idem") as pg:
        psycopg.connect(pg.url)

A small supervisor owns the server. Users hold a shared file lock, and the server stops when no process holds it,
however the holders ended. It listens on a socket that only its account can reach. It needs only the standard library
and the programs that `find_binaries` finds. It does not run on Windows: set IDEM_DATABASE_URL there.
"""

from idem.testing.embedded.binaries import find_binaries
from idem.testing.embedded.errors import EmbeddedError
from idem.testing.embedded.users import Embedded, acquire, outage

__all__ = ["Embedded", "EmbeddedError", "acquire", "find_binaries", "outage"]

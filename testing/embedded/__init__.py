"""The embedded PostgreSQL: a server of one's own, shared by all processes that name the same folder.

    with acquire(".idem") as pg:
        psycopg.connect(pg.url)

A small supervisor owns the server. Users hold a shared file lock, and the server goes away when no one holds it,
however its holders went. It listens on a socket that only its account can reach, and needs nothing but the standard
library and the programs that `find_binaries` names. Not for Windows: set IDEM_DATABASE_URL there.
"""

from idem.testing.embedded.binaries import find_binaries
from idem.testing.embedded.errors import EmbeddedError
from idem.testing.embedded.users import Embedded, acquire, outage

__all__ = ["Embedded", "EmbeddedError", "acquire", "find_binaries", "outage"]

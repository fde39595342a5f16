"""Exit codes, and a message for each user error: what happened and what to do, never a traceback."""

import sys
from typing import Final

from idem.outbox.database.caller_errors import ROOM_FOR_LOCKS
from idem.outbox.values.errors import ConfigError, IdemError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
FINDINGS: Final = 3
INCOMPLETE: Final = 4

EXIT_CODES: Final = """\b
Exit codes of every command:
  0  done
  1  refused or failed; the message says why and what to do
  2  wrong usage, or a mistake in the configuration
  3  done, with something to look at (discrepancies, findings)
  4  not completed, so what was not seen proves nothing (a ledger check)"""

AFTER_A_RESTORE: Final = (
    "If you restored this database and it has no idem schema at all, do not upgrade it: the restore is incomplete. "
    "Restore it again. A new schema has another secret, so retries would pay twice"
)
NO_SCHEMA: Final = (
    "this database has no idem schema, or an older one than this program needs. Run `idem db upgrade`. "
    f"{AFTER_A_RESTORE}"
)

SQLSTATES: Final = {
    **dict.fromkeys(("42P01", "3F000", "42883", "42703"), NO_SCHEMA),
    "42501": "this database role lacks a right: {text}. Run `idem db grant ROLE --as daemon` as the owner of the "
    "schema; `idem doctor` lists the missing rights",
    "28000": "the database rejects this role: {text}",
    "28P01": "the database rejects this password: {text}",
    "3D000": "{text}. Create it, or correct IDEM_DATABASE_URL (or [database] in idem.toml)",
    "55P03": "another transaction has locked rows of idem, and nothing was changed ({text}). Find long transactions "
    "in pg_stat_activity, terminate them, and try again",
    "40P01": "another transaction conflicted with this one: nothing was changed. Try again",
    "53200": f"{ROOM_FOR_LOCKS}. Nothing was changed",
    "57014": "the statement timed out: nothing was changed. {text}",
}


def explain(error: BaseException) -> tuple[str, int] | None:
    """The message and the exit code for an error; None if the error is a bug in idem."""
    if isinstance(error, ConfigError):
        return "\n".join(error.problems), USAGE
    if isinstance(error, IdemError):
        return str(error), FAILED
    if isinstance(error, _known("sqlalchemy.exc", "DBAPIError")) and isinstance(
        original := getattr(error, "orig", None), BaseException
    ):
        return explain(original)
    if isinstance(error, _known("psycopg", "Error")):
        return _database(error), FAILED
    for module, name in OURS:
        if isinstance(error, _known(module, name)):
            return str(error), FAILED
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error), FAILED
    return None


OURS: Final = (
    ("idem.migrations.runner", "MigrationError"),
    ("idem.testing.embedded.errors", "EmbeddedError"),
    ("idem.testing.bank.errors", "BankError"),
)


def _known(module: str, name: str) -> tuple[type, ...]:
    # The package that raised this is already loaded; importing it here would slow down every start.
    found = getattr(sys.modules.get(module), name, None)
    return (found,) if isinstance(found, type) else ()


def state(error: BaseException) -> str | None:
    """The SQLSTATE; libpq gives none for a connection that the server refuses, so its text counts there."""
    words = (("28P01", "password authentication failed"), ("3D000", "does not exist"))
    by_text = next((state for state, text in words if text in str(error)), None)
    return getattr(error, "sqlstate", None) or by_text


def _database(error: BaseException) -> str:
    from idem.migrations.server_text import said

    sqlstate, text = state(error), said(error)
    if sqlstate is None:
        return f"the database cannot be reached: {text}"
    if sqlstate in SQLSTATES:
        return SQLSTATES[sqlstate].format(text=text)
    return f"the database refused this ({sqlstate}): {text}"

"""Exit codes, and one clear message for every mistake of a user's: what happened and what to do, never a traceback."""

from __future__ import annotations

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
  3  done, and there is something that a person should look at (discrepancies, findings)
  4  begun and not completed, so that what was not seen proves nothing (a ledger check)"""

AFTER_A_RESTORE: Final = (
    "If this database was restored and has no idem schema at all, do not upgrade it: its backup did not come back "
    "whole. Restore it again. A schema that is made anew has another secret, and retries would pay twice"
)
NO_SCHEMA: Final = (
    f"this database has no idem schema, or an older one than this program: run `idem db upgrade`. {AFTER_A_RESTORE}"
)

SQLSTATES: Final = {
    "42P01": NO_SCHEMA,
    "3F000": NO_SCHEMA,
    "42883": NO_SCHEMA,
    "42703": NO_SCHEMA,
    "42501": "this database role may not do that: {text}. As the owner of the schema run `idem db grant ROLE --as "
    "daemon`; `idem doctor` says what the role lacks",
    "28000": "the database refuses this role: {text}",
    "28P01": "the database refuses this password: {text}",
    "3D000": "{text}: create it, or correct IDEM_DATABASE_URL (or [database] of idem.toml)",
    "55P03": "something of idem is locked by another transaction, and nothing was changed ({text}): look for long "
    "transactions in pg_stat_activity, end them, and try again",
    "40P01": "another transaction was in the way: nothing was changed; try again",
    "53200": f"{ROOM_FOR_LOCKS}. Nothing was changed",
    "57014": "the database took too long and was stopped: nothing was changed. {text}",
}


def explain(error: BaseException) -> tuple[str, int] | None:
    """The message and the exit code for an error; None for one that is no user's mistake, but ours."""
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
    # Whatever raised this is loaded by now; loading it here would make every start slow.
    found = getattr(sys.modules.get(module), name, None)
    return (found,) if isinstance(found, type) else ()


def _database(error: BaseException) -> str:
    sqlstate = getattr(error, "sqlstate", None)
    text = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
    if sqlstate is None:
        for state, words in (("28P01", "password authentication failed"), ("3D000", "does not exist")):
            if words in text:
                return SQLSTATES[state].format(text=text)
        return f"the database cannot be reached: {text}"
    if sqlstate in SQLSTATES:
        return SQLSTATES[sqlstate].format(text=text)
    return f"the database refused this ({sqlstate}): {text}"

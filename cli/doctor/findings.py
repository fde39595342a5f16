"""What a check found: a level, a description, and what to do if it is not in order."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal, TypeAlias

from idem.migrations.grants import quoted

Severity: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One finding. `check` is a stable name for scripts; `do` is empty only if everything is in order."""

    check: str
    level: Severity
    what: str
    do: str = ""


def ok(check: str, what: str) -> CheckResult:
    """Everything is in order."""
    return CheckResult(check, "ok", what)


def warning(check: str, what: str, do: str) -> CheckResult:
    """Nothing is lost now; an operator should look at it."""
    return CheckResult(check, "warning", what, do)


def error(check: str, what: str, do: str) -> CheckResult:
    """A promise is broken or soon will be, or work is not done."""
    return CheckResult(check, "error", what, do)


def monitor(role: str) -> str:
    """What to do if a role does not see other roles' sessions."""
    return f"In psql, as a superuser: GRANT pg_monitor TO {quoted(role)}; then run `idem doctor` again"


def granting(role: str) -> str:
    """What to do if a role lacks a right that a daemon needs."""
    return (
        f"`idem db grant {shlex.quote(role)} --as daemon`, with the address of the schema's owner in IDEM_DATABASE_URL"
        "; then run `idem doctor` again"
    )


def several(count: int, one: str, many: str | None = None, *, more: bool = False) -> str:
    """A number with its noun; `more`: there may be others that were not read."""
    return f"{'at least ' if more else ''}{count} {one if count == 1 else many or one + 's'}"

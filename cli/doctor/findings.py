"""What a check found: a level, what is so, and for everything that is not in order what to do now."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal, TypeAlias

from idem.migrations.grants import quoted

Level: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found. `check` is a stable name for scripts; `do` is empty only where everything is in order."""

    check: str
    level: Level
    what: str
    do: str = ""


def ok(check: str, what: str) -> CheckResult:
    """Everything is in order."""
    return CheckResult(check, "ok", what)


def warning(check: str, what: str, do: str) -> CheckResult:
    """Nothing is lost now; somebody should look."""
    return CheckResult(check, "warning", what, do)


def error(check: str, what: str, do: str) -> CheckResult:
    """A promise is broken or soon will be, or something is not done."""
    return CheckResult(check, "error", what, do)


def monitor(role: str) -> str:
    """What to do where a role does not see other roles' sessions."""
    return f"In psql, as a superuser: GRANT pg_monitor TO {quoted(role)}; then run `idem doctor` again"


def granting(role: str) -> str:
    """What to do where a role lacks what a daemon needs."""
    return (
        f"`idem db grant {shlex.quote(role)} --as daemon`, with the address of the schema's owner in IDEM_DATABASE_URL"
        "; then run `idem doctor` again"
    )


def several(count: int, one: str, many: str | None = None, *, more: bool = False) -> str:
    """A number with its noun; `more`: there may be others that were not looked at."""
    return f"{'at least ' if more else ''}{count} {one if count == 1 else many or one + 's'}"

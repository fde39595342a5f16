"""What a check found: a level, a description, and what to do if it is not in order."""

import shlex
from collections.abc import AsyncIterator
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


Findings: TypeAlias = AsyncIterator[CheckResult]
"""What a check is: it yields its findings."""


def ok(what: str, check: str = "") -> CheckResult:
    """Everything is in order. It counts only if the check has found nothing under this name before."""
    return CheckResult(check, "ok", what)


def warning(what: str, do: str, check: str = "") -> CheckResult:
    """Nothing is lost now; an operator should look at it. An empty `check` stands for the name of the check."""
    return CheckResult(check, "warning", what, do)


def error(what: str, do: str, check: str = "") -> CheckResult:
    """A promise is broken or soon will be, or work is not done. An empty `check` stands for the name of the check."""
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

"""The revisions as statements, one by one: for drivers that take no script, and for text that looks first.

Every revision can be written without a database (`idem db sql` prints them all), so this is all of what it does.
"""

import io
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory

SCRIPTS: Final = Path(__file__).parent
"""The folder with Alembic's env.py and idem's revisions."""

# What may hold a semicolon that ends nothing, and the one that does. A function's body is a string between dollars.
TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* )
  | (?<!\w)[eE]'(?: [^'\\] | \\. | '' )*'
  | '(?: [^'] | '' )*'
  | "(?: [^"] | "" )*"
  | (?<![\w$])\$(?P<tag> (?:[A-Za-z_]\w*)? )\$ .*? \$(?P=tag)\$
  | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Revision:
    """One step of the schema's history: `after` None is the first."""

    name: str
    after: str | None
    statements: tuple[str, ...]


def revisions(scripts: Path = SCRIPTS) -> list[Revision]:
    """All revisions of a folder, oldest first."""
    found = ScriptDirectory(str(scripts)).walk_revisions()
    return [Revision(each.revision, each.down_revision, _statements(each)) for each in reversed(list(found))]  # type: ignore[arg-type]


def _statements(script: Script) -> tuple[str, ...]:
    # A paramstyle of "%s" would double every percent sign of the functions.
    output = io.StringIO()
    with _quiet():
        context = MigrationContext.configure(
            dialect_name="postgresql",
            dialect_opts={"paramstyle": "named"},
            opts={"as_sql": True, "output_buffer": output, "literal_binds": True},
        )
    # The module's own name, not Alembic's proxy: that one may belong to a revision of the user's that is running now,
    # and would be gone for the rest of it.
    vars(script.module)["op"] = Operations(context)
    script.module.upgrade()
    return tuple(split(output.getvalue()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Alembic logs "Generating static SQL" for each context: in an upgrade of the user's it reads as if nothing ran."""
    thread, log = threading.get_ident(), logging.getLogger("alembic.runtime.migration")

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    log.addFilter(of_others)
    try:
        yield
    finally:
        log.removeFilter(of_others)


def split(script: str) -> Iterator[str]:
    """The statements of a script in SQL, without their semicolons; comments before one stay with it."""
    start, says_something, last = 0, False, 0
    for token in TOKEN.finditer(script):
        says_something = says_something or bool(script[last : token.start()].strip())
        last = token.end()
        if token["end"]:
            if says_something:
                yield script[start : token.start()].strip()
            start, says_something = token.end(), False
        elif not token["comment"]:
            says_something = True
    if says_something or script[last:].strip():
        yield script[start:].strip()

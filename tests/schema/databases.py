"""Databases of a test module's own, and a schema that an ordinary role owns."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from fix_database import create, dropped, on

ENVIRONMENT = "test"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Installed:
    """A database whose schema `owner` made; nobody but the test's superuser may do more than its role."""

    superuser_url: str
    owner: str
    daemon: str
    producer: str

    def url(self, role: str) -> str:
        """A URL under which one works as this role."""
        return as_role(self.superuser_url, getattr(self, role))


def as_role(url: str, role: str) -> str:
    """The same database, as another role from the first statement on."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-c role={role}')}"


@contextmanager
def new_database(server: str, *, owner: str | None = None, template: str | None = None) -> Iterator[str]:
    """The URL of a database that is dropped at the end."""
    name = f"idem_schema_{os.getpid()}_{next(_numbers)}"
    options = (f"OWNER {owner} " if owner else "") + (f"TEMPLATE {template}" if template else "")
    create(server, name, options)
    try:
        yield on(server, name)
    finally:
        dropped(server, name)

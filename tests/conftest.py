"""Fixtures by subject: `fix_database` (servers, clones), `fix_spine` (operations, a bank), `fix_api` (HTTP)."""

from fix_api import api  # noqa: F401
from fix_database import database, db_url, server, superuser_url, template  # noqa: F401
from fix_spine import spine  # noqa: F401

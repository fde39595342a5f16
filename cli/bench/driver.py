"""The driver with which the bench accepts."""

from importlib.util import find_spec


def driver() -> str:
    """asyncpg where it is installed, because its applications take the cheaper one too; else psycopg."""
    return "asyncpg" if find_spec("asyncpg") else "psycopg"

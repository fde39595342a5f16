"""The operator's desk for the table of commands."""

from fix_desk import configuration, desk, environment, variables  # noqa: F401

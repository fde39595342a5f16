"""The operator's desk, for what becomes of a discrepancy."""

from fix_desk import configuration, desk, environment, variables  # noqa: F401

"""The operator's desk for all tests of the command line."""

from fix_desk import configuration, desk, environment, variables  # noqa: F401

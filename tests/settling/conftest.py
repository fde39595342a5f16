"""A desk, for tests with daemons as processes of their own."""

from fix_desk import configuration, desk, environment, variables  # noqa: F401

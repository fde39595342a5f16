"""The operator's desk for what is taken over from another outbox."""

from fix_desk import configuration, desk, environment, variables  # noqa: F401

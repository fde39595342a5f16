"""A running endpoint whose provider is written in idem.toml."""

from __future__ import annotations

from fix_desk import configuration, desk, environment, variables  # noqa: F401

"""A desk, and processes beside it whose surroundings are spoiled."""

from fix_processes import stepped  # noqa: F401

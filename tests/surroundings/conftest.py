"""A desk, and processes beside it whose surroundings are spoiled."""

from fix_desk import configuration, desk, environment, variables  # noqa: F401
from fix_processes import stepped  # noqa: F401

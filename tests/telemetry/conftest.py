from collections.abc import Iterator

import pytest
import structlog
from fix_desk import configuration, desk, environment, variables  # noqa: F401


@pytest.fixture(autouse=True)
def every_line() -> Iterator[None]:
    """Whatever a test before has set up: no level is left out of what these capture."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)

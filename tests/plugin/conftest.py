"""A user's project in a folder of the test's own."""

from pathlib import Path

import pytest
from fix_project import CONFTEST, SHOP, Project


@pytest.fixture
def project(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An application, its fixtures, and no tests yet; it uses the server of this run."""
    monkeypatch.setenv("IDEM_TEST_DATABASE_URL", server)
    monkeypatch.delenv("IDEM_DATABASE_URL", raising=False)
    made = Project(tmp_path)
    made.write(shop=SHOP, conftest=CONFTEST)
    return made

"""Folders of scripts that the upgrade can be pointed at: the product's revisions and one more of the tests."""

import shutil
from pathlib import Path

from idem.migrations.statements import SCRIPTS

HERE = Path(__file__).parent


def with_another(folder: Path, name: str) -> Path:
    """Lay a folder with Alembic's env.py, the product's revisions, and those of `tests/schema/NAME`."""
    shutil.copytree(SCRIPTS / "versions", folder / "versions", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / name, folder / "versions", dirs_exist_ok=True)
    shutil.copy(SCRIPTS / "env.py", folder)
    return folder

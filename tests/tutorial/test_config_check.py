"""`idem config check` reads the application that idem.toml names: what is in the code counts, and its mistakes too."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOML = Path(__file__).with_name("config_check.toml").read_text()
CODE = """
from idem import Idem, Request

idem = Idem()
charge = idem.operation("payments.create", provider="bank", request=lambda p: Request("POST", "/payments", json=p))
"""


def checked(folder: Path, toml: str, code: str) -> dict[str, Any]:
    folder.joinpath("idem.toml").write_text(toml)
    folder.joinpath("payments.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "idem.cli.main", "config", "check", "--json"],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 2)
    return found


def test_operations_of_the_code_are_operations(tmp_path: Path) -> None:
    found = checked(tmp_path, TOML, CODE)
    assert found["ok"] and "operations" not in [each["where"] for each in found["findings"]]


@pytest.mark.parametrize(
    ("code", "where", "said"),
    [
        (CODE.replace('"bank"', '"bonk"'), 'operations."payments.create".provider', "bonk"),
        (CODE.replace("idem = Idem()", "idem = 1 / 0"), "app", "ZeroDivisionError"),
        ("idem = 1", "app", "expected an Idem"),
    ],
)
def test_mistakes_of_the_code_are_found(tmp_path: Path, code: str, where: str, said: str) -> None:
    found = checked(tmp_path, TOML, code)
    (error,) = (each for each in found["findings"] if each["level"] == "error")
    assert error["where"] == where and said in error["what"] + error["do"]


def test_mistakes_of_the_file_are_said_once(tmp_path: Path) -> None:
    found = checked(tmp_path, TOML.replace("retention", "retentoin"), CODE)
    errors = [each for each in found["findings"] if each["level"] == "error"]
    assert not found["ok"] and len(errors) == len({(each["where"], each["what"]) for each in errors})
    assert not any(each["where"] == "app" for each in errors)

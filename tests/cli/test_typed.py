"""A command that idem prints to be typed works in the terminal of a person who has not activated the environment."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """#!{python}
import sys
from idem.cli.base import command_name
print(command_name.command(), *sys.argv[1:])
"""


def said(line: str, path: str, cwd: Path) -> str:
    ran = subprocess.run(
        ["/bin/sh", "-c", line], env={"PATH": path}, cwd=cwd, capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout.strip()


@pytest.mark.quick
@pytest.mark.process
@pytest.mark.parametrize("name", ["bin", "a folder with 'quotes'"])
def test_what_is_printed_is_the_program_that_runs(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    program = place / "idem"
    program.write_text(SCRIPT.format(python=sys.executable))
    program.chmod(0o755)
    away = f"{tmp_path}/nothing:/usr/bin:/bin"
    assert said("idem", f"{place}:{away}", tmp_path) == "idem"
    printed = said("./idem", away, place)
    assert printed != "idem"
    assert said(f"{printed} again", away, tmp_path) == f"{printed} again"


@pytest.mark.quick
@pytest.mark.process
def test_another_idem_on_path_is_not_named(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "idem").write_text(SCRIPT.format(python=sys.executable))
        (tmp_path / name / "idem").chmod(0o755)
    assert said("ours/idem", f"{tmp_path / 'theirs'}:/usr/bin:/bin", tmp_path) == f"{tmp_path}/ours/idem"


@pytest.mark.quick
@pytest.mark.process
def test_a_module_is_named_with_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SCRIPT.format(python=sys.executable))
    printed = said(f"{sys.executable} main.py", "/usr/bin:/bin", tmp_path)
    assert said(f"{printed} --help", "/usr/bin:/bin", tmp_path).startswith("Usage: idem")

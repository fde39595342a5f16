"""The command `idem` as the user must type it: it is not on PATH unless its environment is activated."""

import shlex
import shutil
import sys
from pathlib import Path


def command() -> str:
    """`idem` if PATH finds this program, else a path that works in every folder."""
    ran = Path(sys.argv[0])
    if ran.name != "idem":
        return f"{shlex.quote(sys.executable)} -m idem.cli.main"
    found = shutil.which("idem")
    if found is not None and ran.exists() and ran.samefile(found):
        return "idem"
    return shlex.quote(str(ran.absolute()))


def activation() -> str | None:
    """The shell command that puts `idem` on PATH; None if it is there, or if there is no environment."""
    script = Path(sys.prefix) / "bin" / "activate"
    return None if command() == "idem" or not script.exists() else f". {shlex.quote(str(script))}"

"""Environments that hold exactly what somebody has installed, made of the distributions of the development one.

pip resolves nothing offline, so the resolving is done here, by what the distributions themselves say they need. A
distribution that nobody asked for is not hidden but absent.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent.parent
FOLDERS: Final = ("idem", "outbox", "reconciler", "sweeper", "migrations", "cli", "testing")
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build_wheel(into: Path) -> Path:
    """The wheel of the sources as they lie there, built beside them: setuptools leaves files where it builds."""
    source = into / "source"
    source.mkdir(parents=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(into))
    subprocess.run([*PIP, "wheel", *options, str(source)], check=True, capture_output=True, text=True)
    [wheel] = into.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, which sees nothing of the one that made it."""

    path: Path

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return self.path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.path / "bin" / "python")

    def run(self, *arguments: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run its interpreter, whatever the exit code, without anything of the environment of the tests."""
        return self.start(self.python, *arguments, cwd=cwd, **env)

    def start(
        self, program: str, *arguments: str | Path, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it, in an empty folder of its own unless `cwd` names one."""
        here = cwd or self.path / "empty"
        here.mkdir(exist_ok=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "IDEM_", "VIRTUAL"))
        }
        return subprocess.run(
            [program, *arguments], cwd=here, env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **env},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def names(self) -> set[str]:
        """The canonical names of what is installed."""
        return {canonicalize_name(found.name) for found in distributions(path=[str(self.packages)])}


def make(path: Path, found: Iterable[Distribution]) -> Environment:
    """An environment with these distributions, linked from where they are."""
    venv.create(path, symlinks=True, with_pip=False)
    environment = Environment(path)
    for each in found:
        for top in {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (environment.packages / top).symlink_to(Path(str(each.locate_file(top))))
    return environment


def install(environment: Environment, wheel: Path) -> None:
    """The wheel, by pip, with its script."""
    options = ("--no-deps", "--no-index", "--no-compile", str(wheel))
    subprocess.run(
        [*PIP, "--python", environment.python, "install", *options], check=True, capture_output=True, text=True
    )


def needed(wanted: Iterable[str]) -> list[Distribution]:
    """The distributions of this environment that these requirements bring, all that they need in turn included."""
    known = {canonicalize_name(found.name): found for found in distributions()}
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    todo = [Requirement(text) for text in wanted]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {each for at, each in seen if at == name}:
            seen.add((name, extra))
            todo += _requirements(known[name], extra)
        names.add(name)
    return [known[name] for name in sorted(names)]


def _requirements(found: Distribution, extra: str) -> Iterator[Requirement]:
    for text in found.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement

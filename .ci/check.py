"""`make check`: ruff, mypy strict, import-linter, documents and help texts up to date, sizes of files.

mypy and import-linter know nothing of setuptools' mapping of folders to packages, so they read link folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / "build" / "links"
PACKAGES = ("outbox", "reconciler", "sweeper", "migrations", "cli", "testing")
LONGEST = 300
IMPORTS = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))
"""


def lay_links() -> None:
    """`build/links/idem/outbox -> ../../../outbox` and so on."""
    (LINKS / "idem").mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        link = LINKS / "idem" / name
        if not link.is_symlink():
            link.symlink_to(Path("..") / ".." / ".." / name, target_is_directory=True)
    for part in (ROOT / "idem").iterdir():
        link = LINKS / "idem" / part.name
        if part.suffix in ("", ".py") and part.name != "__pycache__" and not link.is_symlink():
            link.symlink_to(Path("..") / ".." / ".." / "idem" / part.name)


def run(title: str, *command: str, cwd: Path = ROOT) -> bool:
    """One tool; whether it was content."""
    environment = {**os.environ, "PYTHONPATH": str(LINKS), "MYPYPATH": str(LINKS)}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True)
    ok = done.returncode == 0
    sys.stdout.write(f"{'ok  ' if ok else 'FAIL'} {title}\n" + ("" if ok else done.stdout + done.stderr))
    return ok


def tracked(*patterns: str) -> list[Path]:
    """The files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def sizes() -> bool:
    """One subject a file, at most 300 lines (tests may be longer)."""
    lines = {p: len(p.read_text().splitlines()) for p in tracked("*.py") if "tests" not in p.relative_to(ROOT).parts}
    long = {path: n for path, n in lines.items() if n > LONGEST}
    for path, n in long.items():
        sys.stdout.write(f"FAIL {path.relative_to(ROOT)} has {n} lines: one subject a file, at most {LONGEST}\n")
    return not long


def no_addresses() -> bool:
    """The requirements hold versions and hashes, and no address of an index."""
    names = ("requirements-dev.txt", "requirements-lowest.txt", "requirements-docs.txt", "deploy/requirements.txt")
    found = [(name, line) for name in names for line in re.findall(r".*://.*", (ROOT / name).read_text())]
    for name, line in found:
        sys.stdout.write(f"FAIL {name} names an address: {line}\n")
    return not found


def tests_stand_alone() -> bool:
    """No test file imports another: what several use is in a module whose name does not begin with `test_`."""
    imports = re.compile(r"(?m)^(?:from|import) (?:[\w.]+\.)?test_\w+|^from [\w.]+ import (?:.*, )?test_\w+$")
    found = [(path, line.group()) for path in tracked("tests/*.py") for line in imports.finditer(path.read_text())]
    for path, line in found:
        sys.stdout.write(f"FAIL {path.relative_to(ROOT)} imports a test file: {line}\n")
    return not found


def main() -> int:
    lay_links()
    checks = [
        run("ruff check", "-m", "ruff", "check", "."),
        run("ruff format", "-m", "ruff", "format", "--check", "."),
        run("mypy strict", "-m", "mypy", "-p", "idem"),
        run("imports point one way", "-c", IMPORTS, str(ROOT / "pyproject.toml"), cwd=LINKS),
        run("documents are up to date", ".ci/documents.py", "--check"),
        sizes(),
        no_addresses(),
        tests_stand_alone(),
    ]
    return 0 if all(checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())

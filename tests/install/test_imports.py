"""What importing loads, and whose names stand where."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from install.conftest import PROJECT
from install.environments import Environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import idem

FACE = ("idem", "idem.auditing", "idem.decisions", "idem.errors", "idem.inline", "idem.outcomes", "idem.sending")
LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
THEIRS = ("cli", "migrations", "outbox", "reconciler", "sweeper", "testing")
WALK = """
import importlib, pkgutil, sys
import idem
for found in pkgutil.walk_packages(idem.__path__, "idem."):
    # The demo's application is defined over the idem.toml that the demo writes beside it.
    if not found.name.endswith(".__main__") and found.name not in ("idem.migrations.env", "idem.cli.demo.shop"):
        importlib.import_module(found.name)
import {theirs}
for module in ({theirs}):
    assert module.MINE, module
ours = {{m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "idem" and m.__file__}}
strays = [path for path in ours if not path.startswith(sys.argv[1])]
assert not strays, strays
print(len(ours))
"""


def loaded(environment: Environment, *statements: str) -> set[str]:
    done = environment.run("-c", "\n".join([*statements, LOADED]))
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_idem_loads_nothing_but_itself(base: Environment) -> None:
    assert loaded(base, "import idem") - set(sys.stdlib_module_names) - loaded(base) == {"idem"}


def test_every_public_name_is_there_without_the_daemons_packages(base: Environment) -> None:
    """And without a driver: what the application has is enough. SQLAlchemy is loaded by who has connections of it, and
    by no worker of an application without."""
    statements = [f"from {module} import *" for module in FACE]
    brought = loaded(base, *statements) - set(sys.stdlib_module_names)
    assert {"idem", "pydantic"} <= brought
    assert "sqlalchemy" not in brought


def test_the_face_hands_on_each_of_its_names_and_no_other() -> None:
    from idem.application import public

    names: list[str] = idem.__all__  # type: ignore[attr-defined]
    assert names == [name for name in vars(public) if not name.startswith("_")]
    assert all(getattr(idem, name) is getattr(public, name) for name in names)
    with pytest.raises(AttributeError, match="module 'idem' has no attribute 'effect'"):
        _ = idem.effect  # type: ignore[attr-defined]


def test_the_migrations_load_nothing_of_the_application(base: Environment) -> None:
    """A user's Alembic imports them, in an environment that may hold nothing else."""
    done = base.run("-c", "import sys, idem.migrations; print(*(n for n in sys.modules if n.startswith('idem')))")
    assert set(done.stdout.split()) == {"idem", "idem.migrations"}, done.stdout + done.stderr


def test_nothing_of_the_daemons_is_loaded_where_it_is_installed(beside: Callable[..., Environment]) -> None:
    """An import that is only tried would be slow, and differ between environments."""
    daemon = beside(*PROJECT["optional-dependencies"]["daemon"], *PROJECT["optional-dependencies"]["fastapi"])
    statements = [f"from {module} import *" for module in FACE]
    heavy = {
        "alembic", "apscheduler", "cryptography", "fastapi", "h11", "httpx", "prometheus_client", "psycopg",
        "psycopg_pool", "rich", "starlette", "structlog", "typer", "uvicorn",
    }  # fmt: skip
    assert loaded(daemon, *statements) & heavy == set()


@pytest.mark.parametrize("module", ["idem.outbox.worker.worker", "idem.reconciler.daemon", "idem.sweeper.daemon"])
def test_a_daemon_loads_only_what_it_needs(module: str) -> None:
    """Neither SQLAlchemy, which only applications and their handlers bring, nor what serves HTTP."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    assert "psycopg" in done.stdout.split()
    assert set(done.stdout.split()) & {"alembic", "fastapi", "sqlalchemy", "starlette", "uvicorn"} == set()


def test_the_command_without_its_packages_says_which_extra_to_install(base: Environment) -> None:
    done = base.start(str(base.path / "bin" / "idem"), "status")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("idem: ")
    assert 'pip install ".[daemon]"' in line
    assert "psycopg" in line


def test_names_of_the_application_and_of_idem_do_not_meet(beside: Callable[..., Environment], tmp_path: Path) -> None:
    """Decision 0001: their `migrations/`, `cli.py`, `outbox/`, `testing/` are theirs, and ours stay ours."""
    for name in THEIRS:
        if name in ("cli", "sweeper"):
            (tmp_path / f"{name}.py").write_text("MINE = True\n")
        else:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    extras = PROJECT["optional-dependencies"]
    full = beside(*extras["daemon"], *extras["fastapi"], "pytest")
    (tmp_path / "walk.py").write_text(WALK.format(theirs=", ".join(THEIRS)))
    done = full.run(tmp_path / "walk.py", str(full.packages), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
    command = full.run("-m", "idem.cli.main", "db", "sql", cwd=tmp_path)
    assert command.returncode == 0, command.stderr
    assert "CREATE TABLE idem.outbox" in command.stdout


def test_pytest_runs_where_only_the_library_is_installed(beside: Callable[..., Environment], tmp_path: Path) -> None:
    """A plugin is loaded into every test run, of people who never asked for it too."""
    (tmp_path / "test_theirs.py").write_text("def test_theirs(): assert True\n")
    done = beside("pytest").run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_what_the_library_alone_brings(base: Environment) -> None:
    daemon = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["daemon"]}
    assert base.names() & daemon == set()
    assert {"idem-outbox", "sqlalchemy", "pydantic", "jsonschema", "rfc8785", "greenlet"} <= base.names()

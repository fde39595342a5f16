"""The wheel, and what different people have installed of it."""

import tomllib
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest
from install.environments import ROOT, Environment, build_wheel, install, make, needed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install idem-outbox` in an empty environment."""
    environment = make(tmp_path_factory.mktemp("base") / "venv", needed(PROJECT["dependencies"]))
    install(environment, wheel)
    return environment


@pytest.fixture(scope="session")
def beside(base: Environment, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """`pip install idem-outbox` and these beside it."""

    def beside(*requirements: str) -> Environment:
        idem = distributions(name="idem-outbox", path=[str(base.packages)])
        path = tmp_path_factory.mktemp("beside") / "venv"
        return make(path, [*needed([*PROJECT["dependencies"], *requirements]), *idem])

    return beside

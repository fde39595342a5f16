"""What `idem up` says when everything is up: where it is, a token, and a request to paste."""

from __future__ import annotations

import http.client
import os
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path

from idem.cli import typed
from idem.cli.group.sample import OPERATION
from idem.cli.opening import URL, in_url

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that are listened on and cannot be called."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the API is."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{in_url(ANYWHERE.get(self.host, self.host))}:{self.port}"

    def answers(self) -> bool:
        """Whether it is ready, asked over HTTP."""
        connection = http.client.HTTPConnection(ANYWHERE.get(self.host, self.host), self.port, timeout=1)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def request(address: Address, token: str, operation: str, body: str) -> str:
    """A curl command for one request, to be pasted into a shell; its key is a new one each time."""
    headers = (
        f"Authorization: Bearer {token}",
        f"Idempotency-Key: try-{secrets.token_hex(4)}",
        "Content-Type: application/json",
        "Prefer: wait=10",
    )
    words = [f"curl -i {address.url}/v1/intents/{operation}", *(f"-H {shlex.quote(header)}" for header in headers)]
    return " \\\n  ".join([*words, f"-d {shlex.quote(body)}"])


def text(
    address: Address, token: str, operations: list[str], config: Path | None, database: str, *, sample: bool
) -> str:
    """All of it. Only the sample's request has a body of ours: with another configuration it would be a real effect."""
    lines = [f"idem is up at {address.url}", f"token of tenant demo: {token}", ""]
    if sample and config is not None:
        body = '{"amount": 1999, "order": "order-1"}'
        lines += [f"Pay (the bank is a pretended one, its settings are in {config.parent}):", ""]
        lines += [request(address, token, OPERATION, body), ""]
        lines.append("Again with the same key: the same answer, and nobody pays twice.")
    elif operations:
        lines += [f"Ask for {operations[0]}, with what it takes in params.json:", ""]
        lines += [request(address, token, operations[0], "@params.json"), ""]
    idem = typed.command()
    if database:
        lines += ["Look at it from another terminal, in this folder:", "", f"{idem} status", "", "or from any folder:"]
    else:
        lines.append("Look at it from another terminal:")
    named = f"IDEM_APP={os.environ.get('IDEM_APP', '')}"
    place = named if config is None else f"IDEM_CONFIG={shlex.quote(str(config.absolute()))}"
    lines += ["", f"{place} {URL}={shlex.quote(database)} {idem} status" if database else f"{place} {idem} status", ""]
    if activation := typed.activation():
        lines += [f"The documentation writes `idem`: `{activation}` makes that work in a terminal.", ""]
    lines.append("Ctrl-C ends everything; the data stays.")
    return "\n".join(lines)

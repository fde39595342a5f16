"""Makes the environments of the peers: a venv each for Python, a folder with node_modules each for Node.js."""

import json
import os
import re
import shutil
import subprocess
import sys

from peers import Peer

TIMEOUT = 600.0


def prepare(peer: Peer) -> str | None:
    """Install the peer, unless it is; returns why it cannot be, or None."""
    wanted = json.dumps(peer.packages)
    mark = peer.folder / ".installed"
    if mark.exists() and mark.read_text() == wanted:
        return None
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.mkdir(parents=True)
    try:
        (_npm if peer.node else _pip)(peer)
    except (OSError, subprocess.SubprocessError) as error:
        return reason(getattr(error, "stderr", None) or str(error))
    mark.write_text(wanted)
    return None


def reason(said: str) -> str:
    """The line of a program's errors that says why, without addresses and paths: a page holds none of this machine."""
    lines = [line for line in said.strip().splitlines() if line.strip()] or ["it said nothing"]
    told = [line for line in lines if re.match(r"error|npm (err|error)", line, re.IGNORECASE)]
    return re.sub(r"(\w+://|/)[^\s'\"]*", "…", (told or lines)[-1 if not told else 0])[:200]


def environment(peer: Peer) -> dict[str, str]:
    """The environment of its driver: nothing of ours."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("IDEM_", "PYTHON"))}
    return inherited | ({"NODE_PATH": str(peer.folder / "node_modules")} if peer.node else {})


def _pip(peer: Peer) -> None:
    _run([sys.executable, "-m", "venv", str(peer.folder)], peer)
    pip = [str(peer.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", *peer.packages], peer)


def _npm(peer: Peer) -> None:
    (peer.folder / "package.json").write_text('{"private": true}')
    _run(["npm", "install", "--no-audit", "--no-fund", "--silent", *peer.packages], peer)


def _run(command: list[str], peer: Peer) -> None:
    subprocess.run(command, cwd=peer.folder, check=True, capture_output=True, text=True, timeout=TIMEOUT)

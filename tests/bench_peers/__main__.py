"""`make bench`: idem beside its peers on one PostgreSQL server, and docs/benchmarks.md from what was found.

    .venv/bin/python tests/bench_peers [--repeat 3] [--scale 1] [--peers pgqueuer,dbos] [--json FILE] [--no-page]

It uses an embedded server in .idem/bench, or that of --database-url: durable, with its default settings.
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import page
from peers import PEERS
from side_by_side import SideBySide, all_in_turn

from idem.cli.base.output import say
from idem.cli.bench import database, run
from idem.cli.bench.display import BenchSteps
from idem.cli.bench.settings import BenchSettings
from idem.cli.bench.stage import Stage

INTENTS = 5000
CALLS = 2500


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="how many jobs, by the usual number")
    parser.add_argument("--peers", default=",".join(peer.name for peer in PEERS))
    parser.add_argument("--database-url")
    parser.add_argument("--json", type=Path, help="also write the medians there")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks.md as it is")
    asked = parser.parse_args()
    chosen = [peer for peer in PEERS if peer.name in asked.peers.split(",")]
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        url = asked.database_url or stack.enter_context(run.embedded())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idem-bench-")))
        database.drop_left(url, say)
        made = stack.enter_context(database.database(url, say))
        stage = Stage(BenchSettings(), made, folder, BenchSteps(quiet=True))
        stack.enter_context(stage.set_up())
        side = SideBySide(stage, folder, asked.scale)
        all_in_turn(side, url, chosen, asked.repeat, INTENTS, CALLS, say)
        about = run.about(made)
    found = {
        "about": about | {"repeat": str(asked.repeat), "scale": f"{asked.scale:g}"},
        "load": [load, os.getloadavg()[0]],
        "versions": side.versions,
        "missing": side.missing,
        "medians": side.medians(),
    }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    if not asked.no_page:
        page.write(found)


if __name__ == "__main__":
    main()

"""Says which versions `make test-newest` tries that the lock does not have.

Runs in its environment, before the tests: if they fail, the cause is among these.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements-dev.txt"


def main() -> int:
    locked = dict(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)", LOCK.read_text(), re.MULTILINE))
    here = {re.sub(r"[-_.]+", "-", each.name).lower(): each.version for each in metadata.distributions()}
    newer = sorted(
        f"{name} {locked[name]} -> {here[name]}" for name in here.keys() & locked if here[name] != locked[name]
    )
    more = sorted(f"{name} {here[name]}" for name in here.keys() - locked - {"idem-outbox", "pip", "setuptools"})
    sys.stdout.write(f"other than in requirements-dev.txt: {', '.join(newer) or 'nothing'}\n")
    sys.stdout.write(f"not in requirements-dev.txt: {', '.join(more) or 'nothing'}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

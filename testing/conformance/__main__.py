"""`python -m idem.testing.conformance`: run the cases against a server, print a table, exit 1 if one failed."""

import argparse
import asyncio
import importlib
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from idem.testing.conformance.cases import Case, CaseError, load, rows
from idem.testing.conformance.runner import CaseOutcome, CaseResult, Runner
from idem.testing.conformance.target import Target

MARKS: dict[CaseOutcome, str] = {"passed": "ok  ", "partly": "part", "failed": "FAIL", "skipped": "skip"}


def main(arguments: list[str]) -> int:
    """Exit code 0: no case failed; 1: some did; 2: the arguments or files cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        cases = [case for case in load(options.file) if fnmatchcase(case.id, options.case)]
        if options.list:
            sys.stdout.writelines(f"{case.id}: {rows().get(case.row, case.row)}\n" for case in cases)
            return 0
        target = _target(options)
        results = asyncio.run(_run(target, options.driver, cases, options.timeout))
    except (CaseError, ValueError, ImportError, AttributeError, OSError) as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    sys.stdout.write(_as_json(results) if options.json else _as_table(results))
    return 1 if any(result.outcome == "failed" for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m idem.testing.conformance", description=__doc__)
    parser.add_argument("--url", help="the server, e.g. https://api.example.com")
    parser.add_argument("--token", help="a bearer token of a test account")
    parser.add_argument(
        "--other-token", help="a token of another account; without it, cases about two accounts are skipped"
    )
    parser.add_argument("--target", type=Path, help="JSON file: paths of operations, their bodies, names of problems")
    parser.add_argument("--profile", help="how the server is configured: default, strict or stripe")
    parser.add_argument("--driver", help="module:Class that puts the server into the initial states of cases")
    parser.add_argument("--case", default="*", help="run only these, e.g. keys/*")
    parser.add_argument(
        "--file", type=Path, action="append", default=[], help="a folder with your own cases, in addition"
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="timeout of one exchange, in seconds")
    parser.add_argument("--json", action="store_true", help="results as JSON")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser


def _target(options: argparse.Namespace) -> Target:
    said = {name: getattr(options, name) for name in ("url", "token", "other_token", "profile")}
    if options.target is not None:
        return Target.read(options.target, **said)
    if options.url is None:
        raise ValueError("no server. Give --url, or --target with a url")
    return Target(**{name: value for name, value in said.items() if value is not None})


async def _run(target: Target, driver: str | None, cases: list[Case], timeout: float) -> list[CaseResult]:
    async with AsyncExitStack() as stack:
        made = None
        if driver is not None:
            module, _, name = driver.partition(":")
            made = getattr(importlib.import_module(module), name)(target)
            if hasattr(made, "__aenter__"):
                made = await stack.enter_async_context(made)
        # A driver that starts the server itself knows its address.
        return await Runner(getattr(made, "target", target), made, timeout=timeout).run(cases)


def _as_table(results: list[CaseResult]) -> str:
    lines = []
    for result in results:
        lines.append(f"{MARKS[result.outcome]}  {result.case.id}")
        lines += [f"        {reason}" for reason in result.reasons]
    counted = Counter(result.outcome for result in results)
    lines.append(", ".join(f"{counted[outcome]} {outcome}" for outcome in MARKS))
    return "\n".join(lines) + "\n"


def _as_json(results: list[CaseResult]) -> str:
    found: list[dict[str, Any]] = [
        {"case": r.case.id, "row": r.case.row, "outcome": r.outcome, "reasons": list(r.reasons)} for r in results
    ]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

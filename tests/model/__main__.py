"""Explore the worlds of the model of flows, or plant a fault in each of them (`cd tests && python -m model`)."""

import argparse
import sys
from dataclasses import replace

from model.explorer import explore
from model.mutants import Mutant
from model.worlds import LARGE, QUICK


def main(arguments: list[str]) -> int:
    """Exit code 1: a rule is broken."""
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__)
    parser.add_argument("--large", action="store_true", help="the large worlds too: some minutes")
    parser.add_argument("--world", default="", help="only worlds whose name has this text")
    parser.add_argument("--mutant", choices=[mutant.name for mutant in Mutant], help="plant this fault")
    options = parser.parse_args(arguments)
    planted = frozenset({Mutant[options.mutant]} if options.mutant else ())
    broken = states = transitions = 0
    for world in QUICK + (LARGE if options.large else ()):
        if options.world in world.name:
            found = explore(replace(world, mutants=planted))
            sys.stdout.write(f"{found}\n")
            sys.stdout.flush()
            broken, states, transitions = (
                broken + len(found.broken), states + found.states, transitions + found.transitions,
            )  # fmt: skip
    sys.stdout.write(f"together: {states:,} states, {transitions:,} transitions, {broken} violations\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

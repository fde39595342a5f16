"""Writes docs/benchmarks.md."""


def write(found):
    pass

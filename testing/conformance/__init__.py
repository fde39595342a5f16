"""The HTTP contract of idempotency keys as JSON cases, run over real HTTP against any running server.

`python -m idem.testing.conformance --url https://… --token …` runs them. docs/conformance.md explains how to read and
write a case, and how to write the driver that puts a server into a case's initial state.
"""

from idem.testing.conformance.cases import Case, CaseError, load, rows
from idem.testing.conformance.driver import ConformanceWorld, Driver, HttpDriver, NotPossible
from idem.testing.conformance.runner import CaseResult, Runner
from idem.testing.conformance.target import Target
from idem.testing.conformance.wire import Client, WireAnswer

__all__ = [
    "Case",
    "CaseError",
    "CaseResult",
    "Client",
    "ConformanceWorld",
    "Driver",
    "HttpDriver",
    "NotPossible",
    "Runner",
    "Target",
    "WireAnswer",
    "load",
    "rows",
]

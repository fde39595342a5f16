"""The HTTP contract of idempotency keys as cases: JSON files, run over real HTTP against a running server, any server.

`python -m idem.testing.conformance --url https://… --token …` runs them; docs/conformance.md says how to read and
how to write one, and how to write the driver that brings a server into the states that they begin in.
"""

from idem.testing.conformance.cases import Case, CaseError, load, rows
from idem.testing.conformance.driver import Driver, HttpDriver, NotPossible, World
from idem.testing.conformance.runner import Result, Runner
from idem.testing.conformance.target import Target
from idem.testing.conformance.wire import Answer, Client

__all__ = [
    "Answer",
    "Case",
    "CaseError",
    "Client",
    "Driver",
    "HttpDriver",
    "NotPossible",
    "Result",
    "Runner",
    "Target",
    "World",
    "load",
    "rows",
]

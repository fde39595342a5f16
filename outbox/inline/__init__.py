"""Inline operations: the caller's own code makes the call, under a lease, and reports how it ended.

`InlineRuns` begins them, a `InlineRun` is one call. Reports, sweeps, look-ups and proofs are those of every other row.
"""

from idem.outbox.inline.run import InlineRun
from idem.outbox.inline.runs import InlineRuns

__all__ = ["InlineRun", "InlineRuns"]

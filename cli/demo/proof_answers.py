"""P3: the same key gets the same answer, byte for byte, and a different request under the same key is refused."""

from collections import Counter
from collections.abc import Iterator

from idem.cli.demo.client_log import LogLine
from idem.cli.demo.proof_records import BrokenPromise, ProofCase, Records

REFUSALS = frozenset({"mismatch", "error"})


def answers(records: Records) -> Iterator[BrokenPromise]:
    """Answers that changed, differ from the stored answer, or disappeared."""
    for case in records.cases:
        seen = [line for line in case.lines if line.said == "replay"]
        changed = [line for line in seen if line.answer != seen[0].answer]
        if changed:
            yield case.finding("P3", "an answer changed", _shown(seen[0]), _shown(changed[0]))
        elif seen and case.intent.key_state == "completed" and seen[0].answer != case.intent.answer:
            stored = f"database: {case.intent.answer_status} {(case.intent.answer_sha256 or '')[:12]}"
            yield case.finding("P3", "an answer differs from the stored one", _shown(seen[0]), stored)
        yield from _gone(case)


def keys(records: Records) -> Iterator[BrokenPromise]:
    """Keys that executed twice, and other content that was accepted under a known key."""
    accepted = Counter(line.key for line in records.clients if line.said == "accepted" and line.committed)
    intents = Counter(case.intent.key for case in records.cases)
    for case in records.cases:
        if accepted[case.intent.key] > 1 or intents[case.intent.key] > 1:
            yield case.finding("P3", "one key was accepted twice", f"{accepted[case.intent.key]} times")
        for line in case.lines:
            if line.asked == "other_body" and line.said not in REFUSALS:
                yield case.finding("P3", "other content was accepted under a known key", f"clients: {line.said}")
            if line.asked != "other_body" and line.said == "mismatch":
                yield case.finding("P3", "the same content was refused as different")


def _gone(case: ProofCase) -> Iterator[BrokenPromise]:
    final = next((n for n, line in enumerate(case.lines) if line.said == "replay"), None)
    if final is None:
        return
    for line in case.lines[final:]:
        if line.said not in ("replay", "error") and line.asked != "other_body" and line.at > case.lines[final].at:
            yield case.finding("P3", "a final answer went away", f"clients: then {line.said}")
            return


def _shown(line: LogLine) -> str:
    return f"clients: {line.status} {(line.body_sha256 or '')[:12]} ({line.asked})"

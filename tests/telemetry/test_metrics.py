"""The metrics as a whole: each is documented, each is fed, and none grows with what it counts."""

import ast
import functools
import runpy
from uuid import uuid4

import pytest
from fix_source import ROOT, trees
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from idem import Answer
from idem.decisions import Expired, InProgress, Replay
from idem.outbox.domain.problem_catalogue import PROBLEMS
from idem.outbox.observe import after_commit, metrics, telemetry
from idem.outbox.observe.after_commit import Moved

NAMES = [name for name, value in vars(metrics).items() if isinstance(value, MetricWrapperBase)]
FEEDING = frozenset({"inc", "set", "observe", "set_to_current_time"})


def test_the_table_in_the_documents_is_the_registry() -> None:
    made = runpy.run_path(str(ROOT / ".ci" / "documents.py"))["metrics"]()
    assert ROOT.joinpath("docs", "metrics.md").read_text() == made, "run python .ci/documents.py"
    assert made.count("| `idem_") == len(NAMES)


def fed(tree: ast.AST) -> set[str]:
    """Metrics that this code counts, sets or observes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FEEDING:
            of: ast.expr = node.func.value
            if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "of":
                of = of.args[0]
            while isinstance(of, ast.Call | ast.Attribute):
                if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name) and of.value.id == "metrics":
                    found.add(of.attr)
                of = of.func if isinstance(of, ast.Call) else of.value
    return found


def test_every_metric_is_fed_and_only_by_the_events() -> None:
    feeding = {
        path.rpartition("/")[2]: fed(tree)
        for path, tree in trees("outbox", "reconciler", "sweeper", "cli", holding=r"\bmetrics\b")
    }
    assert set().union(*feeding.values()) == set(NAMES)
    assert {file for file, names in feeding.items() if names} == {
        "telemetry.py", "daemon_events.py", "after_commit.py", "ages.py",
    }  # fmt: skip


EVENTS = sorted(
    node.name
    for name in ("telemetry", "daemon_events")
    for node in ast.parse(ROOT.joinpath("outbox", "observe", f"{name}.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
)


@functools.cache
def happening() -> frozenset[str]:
    """The events that something tells of. Found once: reading all of the code takes seconds."""
    return frozenset(
        node.attr
        for _, tree in trees("outbox", "reconciler", "sweeper", "cli", holding=r"\b(telemetry|daemon_events)\.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("telemetry", "daemon_events")
    )


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_happens_somewhere(event: str) -> None:
    assert event in happening()


def series() -> int:
    return sum(len(list(metric.samples)) for metric in REGISTRY.collect())


def everything(number: int) -> None:
    tenant, key, intent = f"tenant-{number % 5000}", f"key-{number}", uuid4()
    answer = Answer(201, b"{}")
    for decision in (Expired(intent), InProgress(intent, "claimed", 1.0), InProgress(None, "awaiting", 1.0)):
        telemetry.accepted(tenant, "pay", key, decision)
    telemetry.accepted(tenant, "pay", key, Replay(intent, answer, None, None))  # type: ignore[arg-type]
    telemetry.http_answer("/v1/intents/{operation}", "POST", 201, number / 1000)
    telemetry.http_answer("/v1/intents/{operation}", f"METHOD-{number}", 405, 0.1)
    telemetry.refused_request(list(PROBLEMS)[number % 3])
    telemetry.claimed("p", "a", 1)
    telemetry.rows_claimed([("pay", intent, number)])
    telemetry.called("p", "a", intent, number, "ambiguous", 0.5, "timeout")
    telemetry.reported(intent, number, "ambiguous", "settled")
    telemetry.swept(intent, number, f"worker-{uuid4()}", "unknown")
    telemetry.looked_up("p", "a", intent, "lookup", "absent")
    telemetry.proof_applied(intent, "webhook", "applied")
    change = ("in_progress", "unknown", "claimed", "unknown", "p", "a")
    after_commit.moved(Moved(tenant, "pay", key, intent, number, "worker", "report", *change))
    after_commit.moved(Moved(tenant, "pay", key, intent, number, f"stranger-{number}", "report", *change))


def test_ib_161_no_series_is_added_by_more_work_or_more_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry.log, "info", lambda *_, **__: None, raising=False)
    for number in range(3):
        everything(number)
    before = series()
    for number in range(3, 3_000):
        everything(number)
    assert series() == before
    text, kind = metrics.exposition()
    assert kind.startswith("text/plain")
    assert b"tenant-" not in text
    assert b"key-" not in text

"""What a demo refuses, and what its exit codes say."""

from pathlib import Path

import pytest
from fix_desk import run

from idem.cli.demo import DemoSettings, Sabotage, ending, scenario
from idem.cli.demo.constants import Constants
from idem.cli.demo.proof import DemoProof
from idem.cli.demo.proof_flows import FlowNumbers
from idem.cli.demo.proof_records import BrokenPromise
from idem.cli.demo.report import DemoResult, closing
from idem.cli.demo.sabotage import Victim


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--factor", "nan"), "not a usable factor"),
        (("--factor", "inf"), "not a usable factor"),
        (("--factor", "0.001"), "Use 0.03 or more"),
        (("--database-url", "nonsense:hunter2"), "not a URL of a PostgreSQL server"),
        (("--database-url", "postgresql://a:hunter%zz2@h/d"), "not a URL of a PostgreSQL server"),
        (("--sabotage", "nothing"), "choose one of"),
        (("--sabotage", "share-key", "--flows", "0"), "share-key needs flows: leave --flows out"),
    ],
)
def test_settings_that_cannot_work(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(["demo", *arguments], {})
    assert result.code == 2
    assert words in result.err
    assert "hunter" not in result.err + result.out and "Traceback" not in result.err


NO_FLOWS = FlowNumbers()


def proven(*findings: BrokenPromise, claims_lost: int = 1, flows: FlowNumbers = NO_FLOWS) -> DemoProof:
    numbers = dict.fromkeys(
        ("accepted", "effects_wanted", "effects_made", "refused", "requests_made", "second_sends", "forbidden_sends",
         "duplicates", "lost", "answers_changed", "answers_compared", "evidence_missing", "unsettled",
         "letters_expected", "letters_unexpected", "steps_wrong"), 0,
    )  # fmt: skip
    return DemoProof(**numbers, claims_lost=claims_lost, flows=flows, settled={}, faults={}, findings=list(findings))


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    victim = Victim("i1", "k1")
    for sabotage, hit, named, code in (
        (None, None, None, 0), (None, None, "i1", 1), (Sabotage.LOSE_ROW, victim, "i1", 1),
        (Sabotage.LOSE_ROW, None, None, 3), (Sabotage.LOSE_ROW, victim, None, 4), (Sabotage.LOSE_ROW, victim, "i2", 4),
    ):  # fmt: skip
        findings = [BrokenPromise("P1", "lost", named, "k", "seen")] if named else []
        settings = DemoSettings(sabotage=sabotage, home=tmp_path)
        result = DemoResult(settings, proven(*findings), 1.0, 1, 0, True, str(tmp_path / "work"), hit)
        monkeypatch.setattr("idem.cli.demo.stage.play", lambda *_, result=result: result)
        assert ending.perform(settings) == code, (sabotage, hit, named)


def test_the_closing_explains_what_was_undone_and_kills_that_hit_nothing() -> None:
    said = closing(DemoResult(DemoSettings(), proven(claims_lost=0), 1.0, 4, 0, True, "work", rolled_back=7))
    assert "rolled back by their client" in said and "rolled back on purpose after accept" in said
    assert "no kill hit a claim" in said
    assert "no kill hit a claim" not in closing(DemoResult(DemoSettings(), proven(), 1.0, 4, 0, True, "work"))


def test_the_closing_counts_flows_by_step() -> None:
    flows = FlowNumbers(flows=12, succeeded=8, refused=3, undone=2, partial=1, effects={"reserve": 11, "refund": 2})
    said = closing(DemoResult(DemoSettings(), proven(flows=flows), 1.0, 0, 0, True, "work"))
    assert "12: 8 done, 3 refused (2 of them undone), 1 partly done with a dead letter" in said
    assert "reserve 11, refund 2" in said
    assert "effects by step" not in closing(DemoResult(DemoSettings(), proven(), 1.0, 0, 0, True, "work"))


def test_the_plan_of_the_payments_is_the_same_without_flows() -> None:
    times = Constants(0.05)
    without = scenario.plan(DemoSettings(seed=3, flows=0.0), times)
    planned = scenario.plan(DemoSettings(seed=3, flows=0.3), times)
    assert all(payment.operation.startswith("payments.") for payment in without)
    flows = [payment for payment in planned if payment.operation.startswith("orders.")]
    assert 110 < len(flows) < 190
    assert sum(payment.partial for payment in flows) == 1
    assert {payment.operation for payment in flows} == {"orders.bank", "orders.oldbank"}
    kept = {payment.key: payment for payment in planned if payment not in flows}
    assert [payment for payment in without if payment.key in kept] == list(kept.values())

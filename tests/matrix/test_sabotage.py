"""Rules that are broken on purpose: the matrix must see it, by the bank's log."""

from collections import Counter
from pathlib import Path

import pytest
from matrix import cells, world
from matrix.checks import broken
from matrix.columns import TIMEOUT
from matrix.crossing import CROSSING, TO_THE_END
from matrix.variants import PLAIN

from idem.outbox.domain.contract import Contract
from idem.reconciler import verdict

pytestmark = pytest.mark.timeout(TIMEOUT)


def test_a_reconciler_that_replays_where_a_replay_could_execute(
    db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = property(lambda self: self.key.replay != "none" and self.replay_window > 0)
    monkeypatch.setattr(Contract, "replays", replays)
    known = cells.some(PLAIN["success_only"], "act_then_drop", "act_then_500", "broken_body")
    seen = world.run(db_url, tmp_path, known, webhooks=False)
    found = Counter(broken(seen, list(known)))
    assert found["nothing_forbidden"] == len(known), found
    assert found["one_effect"] == 1, "a bank that forgets failures executes the second send"


def test_a_retention_guard_without_its_margin(db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contract, "replay_window", property(lambda self: self.key.retention))
    seen = world.run(db_url, tmp_path, CROSSING, webhooks=False, steps=TO_THE_END)
    found = Counter(broken(seen, list(CROSSING)))
    assert found == {"nothing_forbidden": len(CROSSING)}


def test_an_absence_that_is_believed_too_soon(db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "_asked_late_enough", lambda row, contract: True)
    known = cells.some(PLAIN["none"], "drop_before_acting", "act_then_drop")
    seen = world.run(db_url, tmp_path, known, webhooks=False)
    assert Counter(broken(seen, list(known)))["nothing_forbidden"] >= 1


def test_without_sabotage_the_same_cells_hold(db_url: str, tmp_path: Path) -> None:
    known = (
        *cells.some(PLAIN["success_only"], "act_then_drop", "act_then_500", "broken_body"),
        *cells.some(PLAIN["none"], "drop_before_acting", "act_then_drop"),
    )
    assert list(broken(world.run(db_url, tmp_path, known, webhooks=False), list(known))) == []

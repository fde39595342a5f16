"""The sample of `idem up` can be checked against its bank's own list."""

from __future__ import annotations

from pathlib import Path

from idem.cli.group.sample import sample
from idem.outbox.configuration.loading import load


def test_the_sample_has_a_list(tmp_path: Path) -> None:
    made = sample(tmp_path)
    provider = load(made.config).providers["bank"]
    assert provider.listing(0.0, 10.0) is not None

"""The sample of `idem up` can be checked against its bank's own list, and nothing in it needs a look."""

from pathlib import Path

import pytest

from idem.cli.group.sample import sample
from idem.outbox.config import explain
from idem.outbox.config.loading import load


@pytest.mark.quick
@pytest.mark.process
def test_the_sample_has_a_list(tmp_path: Path) -> None:
    made = sample(tmp_path)
    provider = load(made.config).providers["bank"]
    assert provider.listing(0.0, 10.0) is not None


@pytest.mark.quick
@pytest.mark.process
def test_the_sample_has_no_finding(tmp_path: Path) -> None:
    assert explain(sample(tmp_path).config) == []

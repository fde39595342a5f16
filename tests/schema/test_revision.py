"""The revision that a daemon asks for at its start is the newest of the scripts."""

from idem.migrations import runner
from idem.migrations.revision import HEAD


def test_the_constant_is_the_head_of_the_scripts() -> None:
    assert runner.head() == HEAD

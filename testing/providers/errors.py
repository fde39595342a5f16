"""The failures of the suite: a promise that does not hold, or a switch that this world does not have."""

from unittest import SkipTest


class Broken(AssertionError):
    """The contract promises what the provider does not keep, or the world's switch does not do what it says."""


class NotSupported(SkipTest):
    """This world cannot show it: the test is skipped, and the text says which switch is missing, or why."""


def must(holds: bool, setting: str, what: str) -> None:
    """Raises Broken unless it holds. `setting` is the place in the provider's table that promises it."""
    __tracebackhide__ = True
    if not holds:
        raise Broken(f"{setting}: {what}")


def world_must(holds: bool, what: str) -> None:
    """Raises Broken, and says that the world, not the contract, is to be mended."""
    __tracebackhide__ = True
    if not holds:
        raise Broken(f"the world: {what}")


def applies(holds: bool, why_not: str) -> None:
    """Raises NotSupported unless the test is about this contract."""
    __tracebackhide__ = True
    if not holds:
        raise NotSupported(why_not)

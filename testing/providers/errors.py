"""The errors of the suite: a broken promise, or a fault that this world cannot make."""

from unittest import SkipTest


class Broken(AssertionError):
    """The contract promises what the provider does not keep, or the world does not do what it says."""


class NotSupported(SkipTest):
    """This world cannot show it: the test is skipped, and the text says what is missing, or why."""


def must(holds: bool, setting: str, what: str) -> None:
    """Raises Broken unless `holds`. `setting` is the setting of the provider that promises it."""
    __tracebackhide__ = True
    if not holds:
        raise Broken(f"{setting}: {what}")


def world_must(holds: bool, what: str) -> None:
    """Raises Broken unless `holds`, and says that the world, not the contract, is wrong."""
    __tracebackhide__ = True
    if not holds:
        raise Broken(f"the world: {what}")


def applies(holds: bool, why_not: str) -> None:
    """Raises NotSupported unless the test applies to this contract."""
    __tracebackhide__ = True
    if not holds:
        raise NotSupported(why_not)

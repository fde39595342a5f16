"""The start of a long-running process: what it loads once, and never lets go of, costs no more than it must."""

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from typing import Final

SELDOM: Final = 20_000
"""Objects between two collections of the youngest. Each call makes many that live for a moment: with the 700 of Python
a worker spends a tenth of its time in looking for garbage."""


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Nothing is garbage while a process loads its modules and its configuration, so no collection looks for any.

    At the end what was loaded is set aside: no later collection walks through it, which stops all threads.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(SELDOM, 20, 20)
        gc.enable()


UNUSED: Final = ("rich", "pygments", "click")


def without_rich(*modules: str) -> None:
    """Import these, which would load rich for what idem does not use: tracebacks in lines, a command of their own.

    What is loaded already, e.g. by an application, stays.
    """
    absent = [name for name in UNUSED if name not in sys.modules]
    # An import of it fails, as where it is not installed.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        for name in modules:
            importlib.import_module(name)
    finally:
        for name in absent:
            del sys.modules[name]

"""Processes that run a function of the tests, forked from one that has imported what such functions need."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["api_process", "kill_handler", "kill_worker", "sending.postman", "flows.killed", "flows.killed_local"]
)


def started(run: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that runs this function of one of the modules above."""
    with pytest.MonkeyPatch.context() as patched:
        # Before Python 3.14 the process that forks has no path of the tests, and silently imports nothing.
        patched.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forkserver.ensure_running()
    process = processes.Process(target=run, args=arguments)
    process.start()
    return process

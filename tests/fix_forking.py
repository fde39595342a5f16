"""Processes that run a function of the tests, forked from one that has imported what such functions need."""

import asyncio
import multiprocessing
import os
import random
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


async def ended(process: BaseProcess, code: int = 0) -> None:
    """Wait for its end, which has this code."""
    await asyncio.to_thread(process.join, 90)
    assert process.exitcode == code


async def two_killed_in_turn(
    start: Callable[[bool], BaseProcess], dice: random.Random, pauses: tuple[float, float]
) -> list[BaseProcess]:
    """Two processes, of which one is killed and begun anew after each pause of so many seconds, six times; the two
    that run in the end. `start(asynchronous)`: one of them."""
    running = [start(False), start(True)]
    for kill in range(6):
        await asyncio.sleep(dice.uniform(*pauses))
        victim = kill % 2
        running[victim].kill()
        await asyncio.to_thread(running[victim].join, 10)
        running[victim] = start(bool(victim))
    return running

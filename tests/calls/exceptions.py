"""Every class of exception that a call can end with."""

import asyncio
import builtins
import inspect
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import h11
import httpcore
import httpx

ALLOWED = {httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol}


PASSED_ON = (KeyboardInterrupt, SystemExit, GeneratorExit)


def exception_classes() -> Iterator[type[BaseException]]:
    found = {
        thing
        for module in (httpx, httpcore, h11, builtins, asyncio, socket, ssl)
        for thing in vars(module).values()
        if inspect.isclass(thing) and issubclass(thing, BaseException) and not issubclass(thing, PASSED_ON)
    }
    yield from sorted(found, key=lambda cls: (cls.__module__, cls.__name__))


def made(cls: type[BaseException]) -> BaseException:
    attempts: list[tuple[Any, ...]] = [("told",), (), ("told", [ValueError()]), (b"", 1), ("utf-8", b"a", 0, 1, "told")]
    for arguments in [*attempts, ("a", 0, 1, "told")]:
        try:
            return cls(*arguments)
        except Exception:
            continue
    error = cls.__new__(cls)
    BaseException.__init__(error)
    return error

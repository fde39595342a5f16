"""The files in which the processes of a group keep their metrics: a full disk or a bad file costs metrics alone.

The library maps its files into memory, so that a disk without room ends the process with SIGBUS. These are written
with `pwrite`, in the library's own form. What cannot be written stays in memory, and is written when there is room.
"""

import contextlib
import json
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from idem.outbox.values.clock import boottime

LARGEST = 64 * 1024 * 1024
"""Bytes. A file of metrics that is larger is none."""

_HEAD = 8
_USED = struct.Struct("i")
_VALUE = struct.Struct("dd")

Entry: TypeAlias = tuple[str, float, float]
"""Key, value, and the time of the value where the newest of several processes counts, else 0."""


class Spoiled(Exception):
    """A file that is not a metric file, or not a complete one."""


def entries(content: bytes) -> Iterator[tuple[int, Entry]]:
    """The values of a file with the byte offset of each; nothing if it is still empty. Raises Spoiled."""
    try:
        used = _USED.unpack_from(content)[0] if content else 0
        if used == 0:
            return
        if not _HEAD <= used <= len(content):
            raise Spoiled(f"it has {len(content)} bytes and says that {used} are used")
        at = _HEAD
        while at < used:
            length = _USED.unpack_from(content, at)[0]
            start, at = at + 4, at + 4 + length + _padding(length)
            if length < 0 or at + _VALUE.size > used:
                raise Spoiled(f"an entry at byte {start} does not end inside it")
            value, timestamp = _VALUE.unpack_from(content, at)
            yield at, (content[start : start + length].decode(), value, timestamp)
            at += _VALUE.size
    except (struct.error, UnicodeDecodeError) as error:
        raise Spoiled(str(error)) from None


def read(file: Path) -> list[Entry]:
    """The values of a file. Raises OSError, Spoiled."""
    with file.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Spoiled("it is too large")
    return [entry for _, entry in entries(content)]


def _padding(length: int) -> int:
    return 8 - (length + 4) % 8


def _packed(key: str, value: float, timestamp: float) -> bytes:
    name = key.encode()
    return _USED.pack(len(name)) + name + b" " * _padding(len(name)) + _VALUE.pack(value, timestamp)


class MetricFile:
    """A dict of doubles of this process, and its file; in the place of the library's `MmapedDict`. Never raises.

    Where the newest of several processes counts, its time is that of the boot-time clock: one that steps would have an
    old word outlive the new ones.
    """

    def __init__(self, filename: str) -> None:
        self._path = Path(filename)
        self._values: dict[str, tuple[float, float]] = {}
        self._places: dict[str, int] = {}
        self._used = _HEAD
        self._file: int | None = None
        self._unwritten: set[str] = set()
        self._lock = threading.Lock()
        self._open()

    def read_value(self, key: str) -> tuple[float, float]:
        """A value and its time; (0, 0) for a new key, which is there from now on."""
        if key not in self._values:
            self.write_value(key, 0.0, 0.0)
        return self._values[key]

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Keep a value, and write it as far as the disk takes it."""
        with self._lock:
            self._values[key] = (value, boottime() if timestamp else 0.0)
            self._unwritten.add(key)
            with contextlib.suppress(OSError):
                self._write(key)
                for other in list(self._unwritten):
                    self._write(other)

    def close(self) -> None:
        """Close the file; it is opened again by the next write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        """A process of the same number may have been here before: what it counted goes on, what is spoiled does not."""
        with contextlib.suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._places, self._used = {}, _HEAD
            content = os.pread(self._file, LARGEST, 0)
            try:
                for place, (key, value, timestamp) in entries(content):
                    self._places[key] = place
                    self._values.setdefault(key, (value, timestamp))
                    self._used = place + _VALUE.size
            except Spoiled:
                os.ftruncate(self._file, 0)
                self._places, self._used = {}, _HEAD
            self._unwritten = set(self._values)

    def _write(self, key: str) -> None:
        if self._file is None:
            self._open()
            if self._file is None:
                raise OSError("there is no file")
        place = self._places.get(key)
        if place is None:
            entry = _packed(key, *self._values[key])
            _pwrite(self._file, entry, self._used)
            # The entry counts from the moment at which the head says so.
            _pwrite(self._file, _USED.pack(self._used + len(entry)) + bytes(4), 0)
            self._used += len(entry)
            self._places[key] = self._used - _VALUE.size
        else:
            _pwrite(self._file, _VALUE.pack(*self._values[key]), place)
        self._unwritten.discard(key)


def _pwrite(file: int, data: bytes, place: int) -> None:
    if os.pwrite(file, data, place) != len(data):
        raise OSError("the disk is full")


def merge(kept: Path, left: Path) -> None:
    """Add the counts of a process that has ended to those that are kept of the dead, in one step, and remove its file.

    Raises OSError where the disk has no room: then both files are what they were. Raises Spoiled after removing a file
    that cannot be read: what was counted there is lost.
    """
    newest = left.name.startswith("gauge")
    try:
        added = read(left)
    except Spoiled:
        left.unlink()
        raise
    try:
        known = {key: (value, at) for key, value, at in read(kept)}
    except (FileNotFoundError, Spoiled):
        known = {}
    for key, value, timestamp in added:
        before, at = known.get(key, (0.0, 0.0))
        if not newest:
            known[key] = (before + value, 0.0)
        elif key not in known or timestamp > at:
            known[key] = (value, timestamp)
    body = b"".join(_packed(key, *each) for key, each in known.items())
    fresh = kept.with_suffix(".new")
    try:
        fresh.write_bytes(_USED.pack(_HEAD + len(body)) + bytes(4) + body)
        fresh.replace(kept)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    left.unlink()


# The library's files are not typed.
_Collector: Any = MultiProcessCollector


def collected(folder: Path) -> tuple[list[Metric], list[str]]:
    """All processes of a group added up, and the names of the files that are left out because they cannot be read."""
    found: dict[str, Any] = {}
    bad = []
    for file in sorted(folder.glob("*.db")):
        try:
            _add(found, file.name, read(file))
        except FileNotFoundError:
            pass  # its process has ended just now
        except (OSError, Spoiled, ValueError, TypeError, AttributeError, IndexError):
            bad.append(file.name)
    return list(_Collector._accumulate_metrics(found, True)), bad


def _add(found: dict[str, Any], name: str, content: list[Entry]) -> None:
    kind, *rest = name.removesuffix(".db").split("_")
    mode, pid = (rest[0], rest[1]) if kind == "gauge" else ("", rest[0])
    samples = []
    for key, value, timestamp in content:
        metric_name, sample, labels, help_text = json.loads(key)
        samples.append((str(metric_name), str(sample), tuple(sorted(labels.items())), str(help_text), value, timestamp))
    for metric_name, sample, labels, help_text, value, timestamp in samples:
        # The library keeps there what its types do not have.
        metric: Any = found.get(metric_name)
        if metric is None:
            metric = found[metric_name] = Metric(metric_name, help_text, kind)
        if kind == "gauge":
            metric._multiprocess_mode = mode
            metric.add_sample(sample, (*labels, ("pid", pid)), value, timestamp)
        else:
            metric.add_sample(sample, labels, value)


def install() -> None:
    """Have the library keep its values in these files. In this process alone, before its first metric is made."""
    vars(values)["MmapedDict"] = MetricFile

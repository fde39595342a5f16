"""A reader: a folder with their application, a shell, and terminals in which something keeps running."""

import ast
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from tutorial.page import Block, missing

NOT_THEIRS = "-p no:hypothesispytest -p no:schemathesis -p no:xdist -p no:asyncio"
"""Plugins of pytest that are here for our own tests, and take their time."""
PATIENCE = 60.0
"""Seconds until what a terminal is to show must be there."""


class Reader:
    """Follows the page. `replaced` are the words that are another machine's: its address, its ports."""

    def __init__(self, folder: Path, replaced: dict[str, str], **environment: str) -> None:
        self.folder = folder
        self._replaced = replaced
        self._terminals: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV", "IDEM_"))}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "PYTEST_ADDOPTS": NOT_THEIRS}
        self._environment |= environment

    def write(self, block: Block) -> None:
        """Put a block where it says: a file of its own, the end of one, or the place of a function."""
        name, _, how = block.about.partition(", ")
        text = self._said(block.body)
        (path,) = self.folder.glob(name.replace("…", "*")) if "…" in name else (self.folder / name,)
        if how == "at its end":
            text = f"{path.read_text()}\n{text}"
        elif how.startswith("instead of its "):
            text = with_function(path.read_text(), text)
        else:
            assert not how and not path.exists(), block.about
            path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def run(self, block: Block) -> str:
        """Run a block in the shell and return what it printed. Variables are there in the next one."""
        state = self.folder.parent / "shell"
        known = f". {shlex.quote(str(state))}\n" if state.exists() else ""
        script = f"set -a\n{known}{self._said(block.text)}\nexport -p > {shlex.quote(str(state))}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, timeout=120, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout

    def until_seen(self, block: Block, expected: str, output: str) -> str:
        """What the block printed. Where it only looks, it is run again until it shows this: `a moment later`."""
        until = time.monotonic() + PATIENCE
        while (left := missing(expected, output)) is not None:
            only_reads = block.text.startswith("curl -s localhost") and len(block.text.split()) == 3
            assert only_reads and time.monotonic() < until, f"not seen: {left}\n\n{output}\n\n{self._shown()}"
            time.sleep(0.5)
            output = self.run(block)
        return output

    def begin(self, block: Block) -> None:
        """Start what keeps running, in the terminal that the block names; `after Ctrl-C` ends what ran there."""
        name, _, how = block.about.partition(", ")
        assert (name in self._terminals) == (how == "after Ctrl-C"), block.about
        if how:
            self._end(name)
        output = self.folder.parent / f"{name}.{time.monotonic_ns()}"
        state = shlex.quote(str(self.folder.parent / "shell"))
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f". {state}\nexec {self._said(block.body)}"],
                cwd=self.folder, env=self._environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._terminals[name] = process, output

    def sees(self, terminal: str, expected: str) -> None:
        """Wait until a terminal shows it."""
        process, output = self._terminals[terminal]
        until = time.monotonic() + PATIENCE
        while (left := missing(self._said(expected), output.read_text())) is not None:
            assert process.poll() is None, f"{terminal} has ended: {output.read_text()}"
            assert time.monotonic() < until, f"{terminal} never showed {left!r}: {output.read_text()}"
            time.sleep(0.1)

    def leave(self) -> None:
        """Ctrl-C everywhere."""
        for name in list(self._terminals):
            self._end(name)

    def _end(self, name: str) -> None:
        process, _ = self._terminals.pop(name)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def _shown(self) -> str:
        """Everything that the terminals have shown, for whoever reads of a failure."""
        return "\n".join(f"{name}:\n{output.read_text()}" for name, (_, output) in self._terminals.items())

    def _said(self, text: str) -> str:
        for word, ours in self._replaced.items():
            text = text.replace(word, ours)
        return text


def with_function(source: str, function: str) -> str:
    """The source with one of its functions replaced by the one of that name."""
    (new,) = ast.parse(function).body
    assert isinstance(new, ast.FunctionDef)
    (old,) = (each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef) and each.name == new.name)
    lines = source.splitlines(keepends=True)
    assert old.end_lineno is not None
    return "".join([*lines[: old.lineno - 1], function, *lines[old.end_lineno :]])

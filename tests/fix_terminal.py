"""A command on a real terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def on_a_terminal(arguments: tuple[str, ...], environment: dict[str, str], width: int = 0) -> tuple[bytes, int]:
    """Run a command on a terminal of this width; returns its output and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "idem.cli.main", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        written = bytearray()
        try:
            while data := os.read(ours, 65536):
                written += data
        except OSError:  # Linux reports the closed other end like this
            pass
        os.close(ours)
        return bytes(written), process.wait(60)

"""A line to the database that is cut at COMMIT: in a thread of its own, so that blocking code may use it."""

from collections.abc import Iterator
from contextlib import contextmanager

from fix_line import target, through

from idem.outbox.values.background_loop import BackgroundLoop
from idem.testing.proxy import Direction, Proxy, ProxyAction


class Cut:
    """`at`: the next COMMIT that goes over the line is cut `before` the server has it, or `after` it has answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.at: str | None = None
        self.down = False
        """Nothing passes."""
        self.after_commit: str | None = None
        """`down`: from the first COMMIT's answer on."""
        self._committing: int | None = None

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if self.down:
            return "cut"
        if direction == "to_server" and b"COMMIT" in data:
            if self.after_commit == "down":
                self._committing = number
            if self.at == "before":
                self.at = None
                return "cut"
            if self.at == "after":
                self.at = None
                self._committing = number
        elif direction == "to_client" and number == self._committing:
            assert b"COMMIT" in data or b"ERROR" in data, data
            self._committing = None
            if self.after_commit == "down":
                self.after_commit = None
                self.down = True
                return "pass"
            return "cut"
        return "pass"


@contextmanager
def cuttable(url: str) -> Iterator[Cut]:
    """The same database behind a line that can be cut."""
    cut = Cut(url)
    proxy = Proxy(target(url), cut)
    with BackgroundLoop("proxy") as background:
        background.call(proxy.listen())
        cut.url = through(url, proxy)
        try:
            yield cut
        finally:
            background.call(proxy.stop())

"""The script of a test: which request gets which fault, and what else happens then."""

import asyncio
import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from idem.testing.bank.errors import SettingsError
from idem.testing.bank.faults import BankFault
from idem.testing.bank.records import Payment, Received
from idem.testing.bank.settings import WebhookOrder

Event = Literal["received", "acted", "answered"]
EVENTS: tuple[Event, ...] = ("received", "acted", "answered")


@dataclass(frozen=True)
class Happening:
    """What a hook gets. `received`: logged, nothing done. `acted`: the payment is on disk, nothing answered.
    `answered`: the operating system has the answer."""

    event: Event
    request: Received
    payment: Payment | None = None
    status: int | None = None


Callback = Callable[[Happening], Awaitable[None] | None]


@dataclass(frozen=True)
class RequestMatch:
    """Which requests match; None means any. `path` may be a pattern (`/payments*`), without the query."""

    account: str | None = None
    method: str | None = "POST"
    path: str | None = None
    key: str | None = None
    reference: str | None = None
    nth: int | None = None

    def __call__(self, request: Received) -> bool:
        equal = ("account", "method", "key", "reference", "nth")
        return all(getattr(self, name) in (None, getattr(request, name)) for name in equal) and (
            self.path is None or fnmatchcase(request.path.partition("?")[0], self.path)
        )


Matcher = RequestMatch | Callable[[Received], bool] | Mapping[str, Any] | None


def matcher(given: Matcher) -> Callable[[Received], bool]:
    """A predicate from what a script may contain: a `RequestMatch`, its members, a function, or None for every POST.

    Raises:
        SettingsError: a member is unknown.
    """
    if given is None:
        return RequestMatch()
    if isinstance(given, Mapping):
        _known(given, {f.name for f in fields(RequestMatch)}, "match")
        return RequestMatch(**given)
    return given


@dataclass(frozen=True)
class ScriptStep:
    """What happens to one request: a fault, and at `on` a SIGKILL to `kill_pid` or a command, before the bank
    continues.

    `webhook` overrides the account's order for the events of the payment that this request makes.
    """

    fault: BankFault | None = None
    kill_pid: int | None = None
    command: tuple[str, ...] = ()
    on: Event = "acted"
    webhook: WebhookOrder | None = None

    @classmethod
    def parse(cls, given: "str | BankFault | Mapping[str, Any] | ScriptStep | None", *, commands: bool = True) -> Self:
        """Parse a step: a fault's name (`none` for no fault), or a mapping with the members of this class, whose
        `kill_pid` may be `"self"`.

        Raises:
            SettingsError: the step is invalid, or has a command although `commands` is False.
        """
        if isinstance(given, cls):
            return given
        if given is None or given == "none":
            return cls()
        if isinstance(given, BankFault):
            return cls(given)
        if isinstance(given, str):
            return cls(BankFault.parse(given))
        if not isinstance(given, Mapping):
            raise SettingsError(f"{given!r} is not a fault")
        _known(given, {f.name for f in fields(cls)}, "step")
        fault = given.get("fault")
        on = given.get("on", "acted")
        command = given.get("command", ())
        webhook = given.get("webhook")
        if on not in EVENTS:
            raise SettingsError(f"on: {on!r} is not one of {', '.join(EVENTS)}")
        if command and not commands:
            raise SettingsError(
                "a command is allowed only in the settings, because any user of this machine can reach this port"
            )
        if isinstance(command, str):
            raise SettingsError("a command must be a list of words; there is no shell")
        if isinstance(webhook, Mapping):
            _known(webhook, {f.name for f in fields(WebhookOrder)}, "webhook")
            webhook = WebhookOrder(**webhook)
        return cls(
            fault if isinstance(fault, BankFault) else None if fault in (None, "none") else BankFault.parse(str(fault)),
            _pid(given.get("kill_pid")),
            tuple(command),
            on,
            webhook,
        )

    async def play(self, happening: Happening) -> None:
        """Run the kill and the command of this step, if this is its event."""
        if happening.event != self.on:
            return
        if self.kill_pid is not None:
            kill(self.kill_pid)
        if self.command:
            process = await asyncio.create_subprocess_exec(*self.command, env={**os.environ, **_variables(happening)})
            await process.wait()


class Script:
    """Rules in the order in which they were added. A request takes the next step of the first rule that matches it and
    has a step left. Safe to use from any thread."""

    def __init__(self) -> None:
        self._rules: list[tuple[Callable[[Received], bool], deque[ScriptStep]]] = []
        self._lock = threading.Lock()

    def add(self, match: Matcher, steps: Iterable[Any], *, commands: bool = True) -> int:
        """Add a rule; returns its number of steps.

        Raises:
            SettingsError: the match or a step is invalid.
        """
        parsed = deque(ScriptStep.parse(step, commands=commands) for step in steps)
        if not parsed:
            raise SettingsError("a rule needs at least one step")
        predicate = matcher(match)
        count = len(parsed)
        with self._lock:
            self._rules.append((predicate, parsed))
        return count

    def add_json(self, rule: Mapping[str, Any], *, commands: bool) -> int:
        """Add a rule of the form `{"match": {…}, "faults": […], "times": n}`; `times` repeats the whole list.

        Raises:
            SettingsError: it has another form.
        """
        _known(rule, {"match", "faults", "times"}, "rule")
        steps, times, match = rule.get("faults"), rule.get("times", 1), rule.get("match")
        if not isinstance(steps, (list, tuple)) or isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise SettingsError('a rule is {"match": {…}, "faults": […], "times": n}')
        if match is not None and not isinstance(match, Mapping):
            raise SettingsError("match must be an object")
        return self.add(match, list(steps) * times, commands=commands)

    def take(self, request: Received) -> ScriptStep | None:
        """Take the step for this request, which uses it up; None if there is none."""
        with self._lock:
            for predicate, steps in self._rules:
                if steps and predicate(request):
                    return steps.popleft()
        return None

    def left(self) -> int:
        """The number of steps that have not been played yet."""
        with self._lock:
            return sum(len(steps) for _, steps in self._rules)

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules.clear()


def kill(pid: int) -> None:
    """Send SIGKILL to one process; if it is already dead, that is not an error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_pid_on_effect(pid: int) -> Callback:
    """A callback for `Bank.when("acted", …)` that kills the process before the bank answers."""
    checked = _pid(pid)
    assert checked is not None
    return lambda _: kill(checked)


def _pid(given: Any) -> int | None:
    if given is None:
        return None
    if given == "self":
        return os.getpid()
    # 0 and negative numbers mean whole process groups, 1 is init; no test means them.
    if isinstance(given, bool) or not isinstance(given, int) or given <= 1:
        raise SettingsError(f"kill_pid: {given!r} is not a process")
    return given


def _known(given: Mapping[str, Any], names: set[str], what: str) -> None:
    if unknown := set(given) - names:
        raise SettingsError(f"unknown in a {what}: {', '.join(sorted(unknown))}. It takes {', '.join(sorted(names))}")


def _variables(happening: Happening) -> dict[str, str]:
    known = {
        "BANK_EVENT": happening.event,
        "BANK_KEY": happening.request.key,
        "BANK_REFERENCE": happening.request.reference,
        "BANK_PAYMENT": happening.payment.id if happening.payment else None,
    }
    return {name: value for name, value in known.items() if value is not None}

"""Groups of options that several commands have: each is a dataclass, and a command takes it as one parameter."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_type_hints

import typer

from idem.cli.base.application import App
from idem.cli.base.options import ByOption, Config, Json, ProviderOption, SinceOption, Yes, moment, port_option, who

P = ParamSpec("P")
T = TypeVar("T")


def grouped(command: Callable[P, T]) -> Callable[P, T]:
    """Replace each parameter whose type is a dataclass by the options that its fields are, for typer."""
    hints = get_type_hints(command, include_extras=True)
    kinds: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: list[inspect.Parameter] = []
    for name, each in inspect.signature(command).parameters.items():
        members = [each] if name not in kinds else inspect.signature(kinds[name]).parameters.values()
        types = hints if name not in kinds else get_type_hints(kinds[name], include_extras=True)
        options += [m.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[m.name]) for m in members]

    def run(**given: Any) -> T:
        for name, kind in kinds.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        return command(**given)  # type: ignore[call-arg]

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in options}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """The options of a command with which an operator decides something."""

    config: Config = None
    app: App = None
    by: ByOption = None
    yes: Yes = False
    as_data: Json = False

    @property
    def operator(self) -> str:
        """The operator's identity for the evidence."""
        return who(self.by)


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The options of every command that runs a process."""

    config: Config = None
    app: App = None
    log: Annotated[Literal["console", "json"], typer.Option("--log", help="Format of log lines.")] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option("--log-level", help="Lowest level to log.")
    ] = "info"


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(LogOptions):
    """The same for a process that may wait for its database and serve metrics."""

    metrics_host: Annotated[str, typer.Option(help="Address to serve metrics on.")] = "127.0.0.1"
    wait: Annotated[
        float, typer.Option(min=0, help="How long to retry the database at start-up before giving up, in seconds.")
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class DaemonOptions(ProcessOptions):
    """The same for a daemon, which serves its own metrics."""

    metrics_port: Annotated[
        int | None, port_option("Serve /metrics, /healthz and /readyz on this port; default: none.", least=1)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ListFilters:
    """The filters that every list of intents or dead letters has."""

    provider: ProviderOption = None
    account: Annotated[str | None, typer.Option(help="Only entries of this account of a provider.")] = None
    label: Annotated[str | None, typer.Option(help="Only entries with this label.")] = None
    reference: Annotated[str | None, typer.Option(help="Only entries with this provider reference.")] = None
    since: SinceOption = None
    until: Annotated[str | None, typer.Option(help="Before this time, in the same format as --since.")] = None

    def checked(self) -> dict[str, Any]:
        """The filters by name; `since` and `until` as of `options.moment`. Raises a usage error."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return given | {"since": moment(self.since), "until": moment(self.until, "--until")}

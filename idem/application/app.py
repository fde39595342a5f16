"""`Idem`: what an application says about its effects, once, at its top.

charge = Idem().operation("payments.create", Charge, provider="ledger", request=…, answer=…)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack

from idem.application import functions
from idem.application.configured import Configured
from idem.application.connections import ConnectionAdapter
from idem.application.databases import Databases
from idem.application.definition import Answering, Declared, Definition
from idem.application.flow import Step
from idem.application.operation import Operation, P
from idem.application.options import OperationOptions, ProviderOptions, Table
from idem.outbox import config
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outcomes import Pending
from idem.outbox.values.errors import ConfigError
from idem.outbox.values.suggestions import nearest

if TYPE_CHECKING:
    from idem.application.audit import Unprotected
    from idem.application.background import ApplicationLoop
    from idem.outbox.database.notify import CommitHint
    from idem.outbox.handlers.handler import Begin, Handler, Hears

Headers: TypeAlias = Mapping[str, str] | Sequence[tuple[bytes, bytes]]
View = TypeVar("View", bound=Callable[..., Any])


class Idem(Configured):
    """The operations of one application. Made once, at import; opens no connection and needs no credential.

    `path`: the idem.toml (else IDEM_CONFIG, else ./idem.toml, which need not be there). `tenant`: a dependency of
    FastAPI that gives the caller's account out of its credential; without it there is one tenant, `default`. Raises
    ConfigError with every mistake of the configuration.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        env: Mapping[str, str] = os.environ,
        tenant: Callable[..., Any] | None = None,
    ) -> None:
        functions.check("Idem: tenant=", tenant, "is a dependency of FastAPI that returns the caller's account")
        super().__init__(path, env)
        self.tenant = tenant
        self._handlers: dict[str, Handler] = {}
        self._databases = Databases()
        self._background: tuple[int, ApplicationLoop] | None = None
        self._lock = threading.RLock()

    # What an application says.

    def provider(self, name: str, **settings: Unpack[ProviderOptions]) -> None:
        """A provider, by the same tables as `[providers.<name>]` of idem.toml. Raises ConfigError.

        `send=`: a function that makes the call without HTTP, `def send(request: SendRequest, call: Sending)`; and
        `lookup=` one that is asked what became of it, `def lookup(question: Question)`. Each is sync or async.
        """
        if not isinstance(name, str):
            raise ConfigError(f"providers.{name}: the name must be text, e.g. 'ledger'")
        if "send" in settings:
            if not callable(settings["send"]):
                raise ConfigError(f"providers.{name}: send= must be a function, not {settings['send']!r}")
            settings.setdefault("kind", "send")
        if name in self._found.provider_settings:
            raise ConfigError(f"providers.{name}: it is defined twice")
        self._tables[name] = MappingProxyType(dict(settings))
        try:
            self._found = self._load(accepting=True)
        except BaseException:
            del self._tables[name]
            raise
        self._built = None

    def operation(
        self,
        name: str,
        model: type[P] | None = None,
        *,
        provider: str | None = None,
        inline: bool = False,
        steps: Sequence[Step] = (),
        request: Callable[[P], Any] | None = None,
        answer: Answering | None = None,
        interim: Callable[[Pending], Any] | None = None,
        label: Callable[[P], str | None] | None = None,
        approve: Callable[[P], bool] | Literal["always"] | Table | None = None,
        rejected: Callable[[str], Answer] | Answer | None = None,
        **options: Unpack[OperationOptions],
    ) -> Operation[P]:
        """An operation: a named effect, and the scope of its keys. `model` is the type of its params (pydantic).

        With a `provider`, a worker makes the call that `request` builds of the params; `inline`: the caller's own code
        makes it, under a lease; with neither, the caller's own rows are the effect. `steps`: several calls, or calls
        and your own rows, one after the other (`Step`). `answer` makes the client's answer of the outcome, `interim`
        the client's answer while the provider is working. `approve` says of the params whether a person must approve
        it before it is sent, `rejected` what the client gets if that person says no. Everything else as in
        `[operations.<name>]` of idem.toml: `key_ttl="72h"`, `start_within`, `redrive`, …

        Raises ConfigError.
        """
        if not isinstance(name, str):
            raise ConfigError(f"operations.{name}: the name must be text, e.g. 'payments.create'")
        if name in self._definitions or name in self._found.operations:
            raise ConfigError(f'operations."{name}": it is defined twice')
        if not config.NAME.fullmatch(name):
            raise ConfigError(
                f'operations."{name}": invalid name: use a-z, 0-9, dots, dashes and underscores, at most 63'
            )
        definition = Definition(
            name, model, provider=provider, inline=inline, request=request, answer=answer, interim=interim,
            label=label, approve=approve if callable(approve) else None, rejected=rejected,
            settings=options if approve is None or callable(approve) else {**options, "approve": approve},
            steps=tuple(steps) if isinstance(steps, list) else steps,
        )  # fmt: skip
        definition.build(self._found)
        self._definitions[name] = definition
        self._built = None
        return Operation(self, definition)

    def declared(self, name: str) -> Operation[Any]:
        """An operation that idem.toml defines, for code that accepts it: its params are JSON. Raises ConfigError."""
        if name not in self._found.operations:
            known = nearest(name, self._found.operations)
            raise ConfigError(f'operations."{name}": idem.toml defines no such operation. {known}')
        return Operation(self, Declared(name, self._found))

    def exempt(self, reason: str) -> Callable[[View], View]:
        """Mark an endpoint that changes state without the contract, and say why: `audit` leaves it out."""
        from idem.application.audit import exempt

        return exempt(reason)

    def audit(self, app: Any, *, exempt: Sequence[str] = ()) -> list[Unprotected]:
        """The routes of an application that change state without the contract of an operation of idem's.

        `exempt`: routes that are meant so, as `"POST /login"`. As a test: `assert not idem.audit(app)`.
        """
        from idem.application.audit import audit

        return audit(app, exempt)

    def install(self, app: Any) -> None:
        """Have an application of FastAPI, Starlette or Flask answer what idem raises, and show its problems' pages.

        A transaction that is to be run again, or a database that is away, is 503 with `Retry-After`: the client sends
        the same request again.
        """
        from idem.application.install import install

        install(app)

    def webhooks(self) -> Any:
        """An ASGI application that takes the providers' events: `app.mount("/webhooks", idem.webhooks())`."""
        return self.background().webhooks()

    def ingest(self, provider: str, headers: Headers, body: bytes, *, account: str | None = None) -> str:
        """Take a provider's event in an endpoint of the application's own: the raw bytes, as they came.

        What became of it; of a batch: of each event, in their order, separated by commas. Raises
        `idem.errors.WebhookRefused` for what is not genuine: answer that 401.
        """
        return self.background().ingest(provider, headers, body, account)

    async def ingest_async(self, provider: str, headers: Headers, body: bytes, *, account: str | None = None) -> str:
        """The same for asynchronous code."""
        return await self.background().ingest_async(provider, headers, body, account)

    # What others need of it.

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """What `on_settled` and `on_step` have registered, by name."""
        return MappingProxyType(self._handlers)

    def secret(self, adapter: ConnectionAdapter) -> bytes:
        """The installation's secret, read once for each database."""
        return self._databases.secret(adapter, self._found.providers.values())

    def hint(self, adapter: ConnectionAdapter, lane: str) -> CommitHint | None:
        """What hints the workers of a lane that something is due, on a connection of idem's own. A lost hint costs a
        poll."""
        return self._databases.hint(adapter, self._configured_address, lane)

    def register(
        self,
        operation: Operation[Any],
        function: Callable[..., Any],
        *,
        name: str | None = None,
        begin: Begin = "registered",
        hears: Hears = "settled",
    ) -> None:
        """Keep a handler. Raises ConfigError for a second one of the same name."""
        from idem.outbox.handlers.handler import handler

        made = handler(operation.name, function, operation.definition.read, name=name, begin=begin, hears=hears)
        if made.name in self._handlers:
            raise ConfigError(f"handlers.{made.name}: it is registered twice")
        self._handlers[made.name] = made

    def background(self) -> ApplicationLoop:
        """idem's own event loop and connections in this process, for what cannot be done on the caller's."""
        from idem.application.background import ApplicationLoop

        with self._lock:
            # A process that was forked has the object, but not its thread.
            if self._background is None or self._background[0] != os.getpid():
                self._background = (os.getpid(), ApplicationLoop(self))
            return self._background[1]

    def close(self) -> None:
        """End idem's own threads and connections in this process; they begin again where they are needed.

        Call it at the end of a program: idem first wakes the workers for what was accepted last. The leases of inline
        calls are not renewed any more.
        """
        with self._lock:
            background, self._background = self._background, None
        if background is not None and background[0] == os.getpid():
            background[1].close()
        self._databases.close()
        super().close()

"""The application whose operations and handlers a command uses: `app = "module:name"`, IDEM_APP or --app."""

from __future__ import annotations

import os
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from idem.outbox.values.errors import ConfigError, IdemError

if TYPE_CHECKING:
    from idem.application.app import Idem

VARIABLE: Final = "IDEM_APP"


def _use(app: str | None) -> str | None:
    # Child processes use the same application.
    if app:
        os.environ[VARIABLE] = app
    return app


App: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--app", envvar=VARIABLE, show_envvar=True, callback=_use, show_default=False,
        help="The Idem object of the application whose operations and handlers to use, e.g. shop.payments:idem.",
    ),
]  # fmt: skip


def application(config: Path | None) -> Idem | None:
    """Import the application that is configured for this process; None if there is none. Raises ConfigError."""
    from idem.outbox.config import source

    named = os.environ.get(VARIABLE)
    if not named:
        path = source.find(config, os.environ)
        named = source.read(path)[0].get("app") if config is not None or path.exists() else None
    if not named:
        return None
    if config is not None:
        # It reads its own idem.toml, and must read this one.
        os.environ[source.FILE_VARIABLE] = str(config.absolute())
    return _imported(str(named))


@cache
def _imported(named: str) -> Idem:
    from idem.application.app import Idem

    module, colon, attribute = named.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(f"app: {named!r} is not module:name. Write e.g. shop.payments:idem")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except IdemError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"app: there is no module {error.name} in {here}. Run the command in the application's folder, or "
                "correct the name"
            ) from None
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"app: {module} cannot be imported: {type(error).__name__}: {error} ({Path(at.filename).name}, line "
            f"{at.lineno})"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Idem):
        raise ConfigError(
            f"app: {named} is {'missing' if found is None else f'of type {type(found).__name__}'}, expected an Idem"
        )
    return found

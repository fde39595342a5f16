"""The command `idem`: what is around every command of it."""

import sys
from collections.abc import Callable, Sequence
from functools import cache

import typer

from idem.cli.base import streams
from idem.cli.base.failures import FAILED, USAGE, explain
from idem.cli.base.output import say
from idem.cli.commands import COMMANDS, app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A traceback means a bug in idem."""
    with streams.guarded() as out:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        out.flush()
        if out.error is not None:
            say(f"idem: cannot write the output: {out.error.strerror}")
            code = code or FAILED
    return code


@cache
def _command(name: str) -> Callable[..., object]:
    """The command of this name alone, so that the others need not be loaded; all of them for another word."""
    return typer.main.get_command(app([name] if name in COMMANDS else COMMANDS))


def _run(arguments: Sequence[str]) -> int:
    for each in arguments:
        try:
            each.encode()
        except UnicodeEncodeError:  # the database takes no other text
            say(f"idem: the argument {each!a} is not UTF-8 text: write it in UTF-8")
            return USAGE
    try:
        _command(next(iter(arguments), ""))(args=list(arguments), prog_name="idem")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else 0
    except KeyboardInterrupt:
        return FAILED
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        message, code = explained
        say(f"idem: {message}")
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())

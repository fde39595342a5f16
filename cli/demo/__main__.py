"""`python -m idem.cli.demo`: the command alone, for tests and for a look at it."""

import sys

import typer

from idem.cli.base.failures import explain
from idem.cli.base.output import say
from idem.cli.demo.command import demo

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(demo)
    try:
        app()
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        say(f"idem: {explained[0]}")
        sys.exit(explained[1])

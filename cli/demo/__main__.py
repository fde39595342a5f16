"""`python -m idem.cli.demo`: the command alone."""

import typer

from idem.cli.demo.command import demo

if __name__ == "__main__":
    typer.run(demo)

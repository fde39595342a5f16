"""`idem db`: the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from idem.cli import opening
from idem.cli.failures import FINDINGS
from idem.cli.options import Config, Json, examples
from idem.cli.output import as_json, fields, say
from idem.outbox.errors import ConfigError, Refusal

app = typer.Typer(
    no_args_is_help=True,
    help="The schema of idem in your database.",
    epilog=examples("idem db upgrade", "idem db check --json"),
)


@app.command(epilog=examples("idem db upgrade", "IDEM_ENVIRONMENT=production idem db upgrade --lock-timeout 2"))
def upgrade(
    config: Config = None,
    lock_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for each lock, so that nobody queues behind it.")
    ] = 5.0,
    attempts: Annotated[int, typer.Option(min=1, help="How often to try when a lock is not free.")] = 5,
    as_data: Json = False,
) -> None:
    """Create the schema, or bring it up to date: all or nothing, and safe to call from several starters at once.

    A new installation takes the environment's name for good, so somebody must have said it: IDEM_ENVIRONMENT, or
    `environment` in idem.toml.
    """
    from idem.migrations import runner

    url, (environment, said) = opening.database_url(config), opening.environment(config)
    there = _found(url)
    if there["environment"] is None and not said:
        raise ConfigError(
            f"environment: nothing names it, and this database is new ({opening.named(url)}): it would keep the name "
            'for good. Set IDEM_ENVIRONMENT=production (or staging, development, …), or write environment = "…" at '
            "the top of idem.toml"
        )
    say(f"environment {environment}, database {opening.named(url)}")
    if there["environment"] not in (None, environment):
        raise Refusal(
            f"this database is environment {there['environment']}, but the configuration says {environment}: it is "
            "the wrong database, or the wrong idem.toml"
        )
    schema = runner.upgrade(
        url,
        environment=environment,
        evidence_retention=opening.evidence_retention(config),
        lock_timeout=lock_timeout,
        attempts=attempts,
    )
    done = {"before": there["revision"], "revision": schema.current, "environment": environment}
    if as_data:
        as_json(done)
    elif there["revision"] == schema.current:
        typer.echo(f"the schema is up to date ({schema.current})")
    else:
        typer.echo(f"the schema is at {schema.current} now (before: {there['revision'] or 'none'})")


@app.command(epilog=examples("idem db current", "idem db current --json"))
def current(config: Config = None, as_data: Json = False) -> None:
    """Print the revision of the schema, and the one that this program wants."""
    _show(_found(opening.database_url(config)), as_data=as_data)


@app.command(epilog=examples("idem db check", "idem db check || idem db upgrade"))
def check(config: Config = None, as_data: Json = False) -> None:
    """Check that the schema is the one that this program wants; exit code 3 if it is not."""
    found = _found(opening.database_url(config))
    _show(found, as_data=as_data)
    if not found["up_to_date"]:
        say("idem: the schema is not the one that this program wants: run `idem db upgrade`, or use the other version")
        raise typer.Exit(FINDINGS)


@app.command(epilog=examples("idem db sql", "idem db sql | psql --single-transaction -f - mydb"))
def sql(config: Config = None) -> None:
    """Print the statements of an upgrade from nothing, to read or to run by hand. Needs no database."""
    from idem.migrations import runner

    environment, said = opening.environment(config)
    if not said:
        say(f"note: nothing names the environment, so these statements call it {environment}: set IDEM_ENVIRONMENT")
    typer.echo(runner.offline_sql(environment))


def _show(found: dict[str, Any], *, as_data: bool) -> None:
    if as_data:
        as_json(found)
    else:
        fields([(name.replace("_", " "), "none" if value is None else value) for name, value in found.items()])


def _found(url: str) -> dict[str, Any]:
    from sqlalchemy import text

    from idem.migrations import runner

    with runner.engine(url).connect() as connection:
        schema = runner.schema(connection)
        environment = None
        if schema.current is not None:
            environment = connection.scalar(text("SELECT environment FROM idem.installation"))
        return {
            "revision": schema.current,
            "head": schema.head,
            "up_to_date": schema.up_to_date,
            "environment": environment,
            "server": str(connection.scalar(text("SHOW server_version"))),
        }


def require_schema(config: Path | None) -> None:
    """Raises Refusal unless the schema is the one that this program wants: for daemons, before they start."""
    found = _found(opening.database_url(config))
    if not found["up_to_date"]:
        raise Refusal(
            f"the schema of this database is at {found['revision'] or 'nothing'}, this program wants {found['head']}: "
            "run `idem db upgrade`"
        )

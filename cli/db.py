"""`idem db`: the schema."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idem.cli.base import opening
from idem.cli.base.application import App
from idem.cli.base.failures import AFTER_A_RESTORE, FINDINGS
from idem.cli.base.options import Config, Json, examples, group
from idem.cli.base.output import as_json, fields, say
from idem.outbox.database.installation import other_environment
from idem.outbox.values.errors import ConfigError, OperatorRefused

if TYPE_CHECKING:
    from idem.outbox.database.address import Address

app = group("The schema of idem in your database.", "idem db upgrade", "idem db check --json")


@app.command(epilog=examples("idem db upgrade", "IDEM_ENVIRONMENT=production idem db upgrade --lock-timeout 2"))
def upgrade(
    config: Config = None,
    lock_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, help="Seconds to wait for each lock. Other sessions' statements queue behind it."
        ),
    ] = 5.0,
    attempts: Annotated[int, typer.Option(min=1, help="How many attempts when a lock is not free.")] = 5,
    as_data: Json = False,
) -> None:
    """Create the schema or upgrade it, all or nothing. Several processes may run this at once.

    A new installation keeps the environment's name permanently, so you must set it: IDEM_ENVIRONMENT, or `environment`
    in idem.toml.
    """
    from idem.migrations import runner

    address, (environment, said) = opening.address(config), opening.environment(config)
    there = _found(address, owner=True)
    if there["environment"] is None and not said:
        raise ConfigError(
            f"environment: it is not set, and this database is new ({opening.named(address)}) and would keep the name "
            'permanently. Set IDEM_ENVIRONMENT=production (or staging, development, …), or write environment = "…" '
            "at the top of idem.toml"
        )
    say(f"environment {environment}, database {opening.named(address)}")
    if there["environment"] and (wrong := other_environment(there["environment"], environment)):
        raise OperatorRefused(wrong)
    schema = runner.upgrade(
        address.url,
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
        typer.echo(f"the schema is now at {schema.current} (before: {there['revision'] or 'none'})")


@app.command(epilog=examples("idem db current", "idem db current --json"))
def current(config: Config = None, as_data: Json = False) -> None:
    """Print the schema's revision, and the one that this program needs."""
    _show(_found(opening.address(config)), as_data=as_data)


@app.command(epilog=examples("idem db check", "idem db check || idem db upgrade"))
def check(config: Config = None, as_data: Json = False) -> None:
    """Check that the schema's revision is the one that this program needs; exit code 3 if not."""
    found = _found(opening.address(config))
    _show(found, as_data=as_data)
    if not found["up_to_date"]:
        say(
            "idem: this program needs another revision of the schema. Run `idem db upgrade`, or use the version of "
            "idem that matches" + _restored(found["revision"])
        )
        raise typer.Exit(FINDINGS)


@app.command(epilog=examples("idem db sql", "idem db sql | psql --single-transaction -f - mydb"))
def sql(config: Config = None) -> None:
    """Print the SQL that creates the schema, to read or to run by hand. Needs no database."""
    from idem.migrations import runner

    environment, said = opening.environment(config)
    if not said:
        say(f"note: the environment is not set, so these statements call it {environment}. Set IDEM_ENVIRONMENT")
    typer.echo(runner.offline_sql(environment))


@app.command(epilog=examples("idem db sync", "idem db sync --app shop.payments:idem"))
def sync(config: Config = None, app: App = None, as_data: Json = False) -> None:
    """Store the operations in the database for programs that call idem.accept in SQL. Run it after each change of them.

    It leaves other applications' operations in the same database alone. It needs no provider's credentials, and
    workers do not need it.
    """
    from idem.migrations import runner
    from idem.outbox.accept.sql_operations import sync as write

    known = opening.accepting(config)
    address, (environment, _) = opening.address(config), opening.environment(config)
    there = _up_to_date(address)
    say(f"environment {there['environment']}, database {opening.named(address)}")
    if wrong := other_environment(there["environment"], environment):
        raise OperatorRefused(wrong)
    with runner.engine(address.url).begin() as connection:
        done = write(connection, known.operations, known.providers)
    if as_data:
        as_json({"operations": [asdict(each) for each in done]})
        return
    for each in done:
        typer.echo(f"{each.name}: {each.what}, version {each.version}")
        for change in each.changes:
            typer.echo(f"  {change}")
    if not done:
        say("this configuration has no operation: nothing was written")


class RoleKind(StrEnum):
    """What kind of program uses a role."""

    DAEMON = "daemon"
    OPERATOR = "operator"
    PRODUCER = "producer"
    SQL = "sql"


@app.command(
    epilog=examples(
        "idem db grant shop --as producer",
        "idem db grant idem_worker --as daemon",
        "idem db grant billing --as sql --tenant acme --tenant globex",
        "idem db grant shop --as producer --sql | psql --single-transaction mydb",
    )
)
def grant(
    role: Annotated[str, typer.Argument(help="The database role, which must exist.", show_default=False)],
    kind: Annotated[
        RoleKind,
        typer.Option(
            "--as",
            help="daemon: worker, sweeper, reconciler, API, operator, and applications with inline operations. "
            "operator: the same, and it may approve calls (`idem intents approve`). "
            "producer: an application with the library. sql: a program that calls idem.accept by SQL alone.",
            show_default=False,
        ),
    ],
    tenant: Annotated[
        list[str] | None,
        typer.Option(
            help="A tenant for which the role may call idem.accept in SQL; '*' means every tenant. Repeatable.",
            show_default=False,
        ),
    ] = None,
    print_sql: Annotated[bool, typer.Option("--sql", help="Print the statements without running them.")] = False,
    config: Config = None,
    as_data: Json = False,
) -> None:
    """Grant a database role the rights that its program needs, and no others. Run it as the owner of the schema.

    The role loses all else that an earlier grant gave it: other rights, and tenants that you do not name now. It needs
    no superuser and may be repeated. Run it again after an upgrade, which may add tables.
    """
    from idem.migrations import grants, runner

    tenants = tenant or []
    if kind is RoleKind.SQL and not tenants:
        raise OperatorRefused(
            f"--tenant: role {role} could not accept for any tenant. Name each tenant that it acts for, e.g. --tenant "
            "acme, or --tenant '*' for every tenant"
        )
    try:
        wanted = grants.statements(role, kind.value, tenants)
    except ValueError as error:
        raise OperatorRefused(str(error)) from None
    if print_sql:
        typer.echo("\n".join(f"{statement};" for statement in wanted))
        return
    address = opening.address(config)
    found = _up_to_date(address, owner=True)
    say(f"environment {found['environment']}, database {opening.named(address)}")
    done = runner.grant(address.url, role, kind.value, tenants)
    if as_data:
        as_json({"role": role, "kind": kind.value, "tenants": tenants, "statements": done})
    else:
        accepts = f", and may accept in SQL for: {', '.join(tenants)}" if tenants else ""
        typer.echo(f"{role} now has the rights of {kind.value!r} and no others{accepts}")


def _show(found: dict[str, Any], *, as_data: bool) -> None:
    if as_data:
        as_json(found)
    else:
        fields([(name.replace("_", " "), "none" if value is None else value) for name, value in found.items()])


def _found(address: Address, *, owner: bool = False) -> dict[str, Any]:
    """The revision and environment of the database. For an `owner`'s command, check who owns the schema before reading
    it.
    """
    from sqlalchemy import text

    from idem.migrations import ownership, runner
    from idem.outbox.database import preconditions

    with runner.engine(address.url).connect() as connection:
        if wrong := preconditions.hindrances(
            preconditions.SessionAccess(*connection.execute(text(preconditions.HINDRANCES)).one())
        ):
            raise ConfigError(*map(str, wrong))
        if owner:
            ownership.refuse_others(connection)
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


def _up_to_date(address: Address, *, owner: bool = False) -> dict[str, Any]:
    found = _found(address, owner=owner)
    if not found["up_to_date"]:
        raise other_revision(found["revision"], found["head"])
    return found


def other_revision(found: str | None, needed: str) -> OperatorRefused:
    """What is raised where the schema has another revision than this program needs (None: it has none)."""
    return OperatorRefused(
        f"the schema of this database is at {found or 'nothing'}, but this program needs {needed}. Run "
        f"`idem db upgrade` first{_restored(found)}"
    )


def _restored(found: str | None) -> str:
    return "" if found else f". {AFTER_A_RESTORE}"

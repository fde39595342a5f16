"""Where row-level security hides rows, idem says so, and takes no queue for an empty one (IB-194)."""

import psycopg
import pytest
from connecting.conftest import acting_as, run, tables
from fix_api import PAY, client, running
from fix_desk import Desk
from fix_spine import Spine

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.database import preconditions, session

NAMED = "row-level security"

COMMANDS = (
    ("worker", "run"), ("sweeper", "run"), ("sweeper", "run", "--once"), ("reconciler", "run"), ("reconcile",),
    ("api", "run"), ("webhooks", "run"), ("db", "check"), ("db", "current"), ("db", "upgrade"), ("status",),
    ("intents", "list"), ("dlq", "list"), ("unknowns", "list"), ("token", "list"),
    ("token", "create", "t", "--label", "x"),
)  # fmt: skip


def hide(url: str, *names: str) -> None:
    run(url, *(f"ALTER TABLE idem.{name} ENABLE ROW LEVEL SECURITY" for name in names))


def give(url: str, owner: str) -> None:
    """Everything of idem to another owner, and its policies bind him too."""
    run(
        url,
        f"ALTER SCHEMA idem OWNER TO {owner}",
        *(f"ALTER TABLE idem.{name} OWNER TO {owner}" for name in tables(url)),
        *(f"ALTER TABLE idem.{name} FORCE ROW LEVEL SECURITY" for name in tables(url)),
    )


@pytest.mark.parametrize("owner", [False, True], ids=["a role with grants", "the owner, forced"])
async def test_ib_194_every_command_names_what_hides_the_rows(desk: Desk, role: str, owner: bool) -> None:
    hide(desk.spine.url, *tables(desk.spine.url))
    if owner:
        give(desk.spine.url, role)
    desk.environment["IDEM_DATABASE_URL"] = acting_as(desk.spine.url, role)
    for command in COMMANDS:
        result = await desk.cli(*command)
        assert (result.code, NAMED in result.err, role in result.err) == (2, True, True), (command, result)
    checked = await desk.cli("doctor", code=1, out=f"error    row_security: {NAMED}")
    assert "the schema is at nothing" not in checked.out


async def test_each_single_table_is_looked_at(db_url: str, role: str) -> None:
    for name in tables(db_url):
        hide(db_url, name)
        async with await session.connect(acting_as(db_url, role), name="test") as connection:
            (found,) = await preconditions.read(connection)
        assert f"({name})" in found.what, found
        run(db_url, f"ALTER TABLE idem.{name} DISABLE ROW LEVEL SECURITY")


async def test_no_statement_of_ours_finds_fewer_rows_in_silence(spine: Spine, role: str) -> None:
    """Whichever table it is, and whatever a policy lets through: the statement fails and names the table."""
    async with await session.connect(acting_as(spine.url, role), name="test") as connection:
        for name in tables(spine.url):
            hide(spine.url, name)
            run(spine.url, f"CREATE POLICY others ON idem.{name} USING (false)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'"{name}"'):
                await connection.execute(f"SELECT FROM idem.{name}")  # type: ignore[arg-type]


async def test_a_running_api_does_not_call_a_good_token_wrong(spine: Spine, role: str) -> None:
    settings = ApiSettings.model_validate({"port": 0, "token_cache": 0})
    async with client(spine) as known, running(acting_as(spine.url, role), spine.catalogue, settings) as (_, url):
        path = f"{url}{PAY}"
        assert (await known.ask("k1", path=path)).status_code == 202
        hide(spine.url, "api_tokens")
        answer = await known.ask("k2", path=path)
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        run(spine.url, "ALTER TABLE idem.api_tokens DISABLE ROW LEVEL SECURITY")
        assert (await known.ask("k2", path=path)).status_code == 202


async def test_doctor_names_the_roles_of_others(desk: Desk, role: str) -> None:
    """A superuser sees everything, so what he checks must be what the daemons' role sees."""
    hide(desk.spine.url, "outbox", "intents")
    await desk.cli("doctor", code=1, out=f"on for 2 tables of idem, so role {role} sees no rows")
    run(desk.spine.url, f"ALTER ROLE {role} BYPASSRLS")
    assert NAMED not in (await desk.cli("doctor")).out


async def test_what_could_not_be_checked_is_an_error(desk: Desk, role: str) -> None:
    """A role that may read nothing is no role that everything is in order for."""
    run(desk.spine.url, f"REVOKE SELECT ON ALL TABLES IN SCHEMA idem FROM {role}")
    desk.environment["IDEM_DATABASE_URL"] = acting_as(desk.spine.url, role)
    result = await desk.cli("doctor", "--json", code=1)
    unchecked = [each for each in result.data["findings"] if "could not be checked" in each["what"]]
    assert unchecked and {each["level"] for each in unchecked} == {"error"}
    # Of idem's own tables: what helps is idem's grant, and no right on PostgreSQL's statistics.
    assert [each["do"] for each in unchecked if "`idem db grant " not in each["do"]] == []
    run(desk.spine.url, f"GRANT SELECT ON idem.alembic_version, idem.installation TO {role}")
    result = await desk.cli("doctor", "--json")
    unchecked = [each for each in result.data["findings"] if "could not be checked" in each["what"]]
    assert len(unchecked) > 5 and {each["level"] for each in unchecked} == {"error"}
    assert [each["do"] for each in unchecked if "`idem db grant " not in each["do"]] == []
    assert result.code == 1

"""`idem token`: made, shown once, listed, ended."""

import hashlib
import re
from typing import Any
from uuid import UUID, uuid4

import pytest
from fix_desk import Desk

from idem.errors import OperatorRefused
from idem.outbox.database.pool import Database
from idem.outbox.tenants import tokens


async def test_a_token_is_shown_once_and_stored_as_a_hash(desk: Desk) -> None:
    made = await desk.cli("token", "create", "acme", "--label", "checkout", "--json")
    assert made.code == 0, made.err
    assert "environment test, database" in made.err
    token = made.data["token"]
    assert re.fullmatch(r"idem_[A-Za-z0-9_-]{43}", token)
    row = await desk.spine.one("SELECT * FROM idem.api_tokens")
    assert row["token_sha256"] == hashlib.sha256(token.encode()).digest()
    assert (str(row["id"]), row["tenant_id"], row["label"], row["created_by"]) == (
        made.data["id"], "acme", "checkout", "grace",
    )  # fmt: skip
    assert token not in (await desk.spine.one("SELECT t::text AS text FROM idem.api_tokens t"))["text"]
    listed = await desk.cli("token", "list", "--json")
    assert token not in listed.out
    assert [each["id"] for each in listed.data["tokens"]] == [made.data["id"]]


async def test_for_a_person_the_token_is_on_standard_output(desk: Desk) -> None:
    made = await desk.cli("token", "create", "acme", "--label", "checkout")
    assert len(re.findall(r"idem_[A-Za-z0-9_-]{43}", made.out)) == 1
    assert "only this once" in made.err
    assert re.search(r"idem_[A-Za-z0-9_-]{43}", made.err) is None


async def test_tokens_are_never_the_same(database: Database) -> None:
    async with database.connection() as connection:
        made = {(await tokens.create(connection, "acme", "same"))[1] for _ in range(50)}
    assert len(made) == 50


@pytest.mark.parametrize("tenant", ["", " ", "a b", "a" * 64, "ä", "a/b", "a\n", "a'b", "\u0661"])
async def test_a_tenant_that_cannot_be_one(desk: Desk, tenant: str) -> None:
    done = await desk.cli("token", "create", tenant, "--label", "l")
    assert done.code == 2
    assert "1 to 63 letters" in done.err
    assert await desk.spine.all("SELECT 1 FROM idem.api_tokens") == []


@pytest.mark.parametrize("tenant", ["a", "acme-eu.shop_1", "A" * 63, "...", "-", "0"])
def test_a_tenant_that_can(tenant: str) -> None:
    assert tokens.check_tenant(tenant) == tenant


@pytest.mark.parametrize("label", ["", " ", "a\nb", "a\x1b[31m", "x" * 201, "\ud800"])
def test_a_label_that_cannot_be_one(label: str) -> None:
    with pytest.raises(ValueError, match="label"):
        tokens.check_label(label)


async def test_a_token_is_revoked_once_with_a_reason_on_record(desk: Desk) -> None:
    made = (await desk.cli("token", "create", "acme", "--label", "checkout", "--json")).data
    refused = await desk.cli("token", "revoke", made["id"], "--reason", "lost", answer="n\n")
    assert refused.code == 1
    assert "nothing was changed" in refused.err
    done = await desk.cli("token", "revoke", made["id"], "--reason", "lost", "--by", "ada", answer="y\n")
    assert done.code == 0, done.err
    assert "checkout of tenant acme, never used" in done.err
    row = await desk.spine.one("SELECT * FROM idem.api_tokens")
    assert row["revoked_at"] is not None
    assert (row["revoked_by"], row["revoked_reason"]) == ("ada", "lost")
    again = await desk.cli("token", "revoke", made["id"], "--reason", "other", "--yes")
    assert again.code == 1
    assert "already revoked: by ada, lost" in again.err
    assert (await desk.spine.one("SELECT * FROM idem.api_tokens"))["revoked_reason"] == "lost"
    assert (await desk.cli("token", "list", "--json")).data == {"tokens": []}
    (shown,) = (await desk.cli("token", "list", "--revoked", "--json")).data["tokens"]
    assert shown["revoked_reason"] == "lost"


async def test_a_token_that_is_none(desk: Desk, database: Database) -> None:
    done = await desk.cli("token", "revoke", uuid4(), "--reason", "r", "--yes")
    assert done.code == 1
    assert "idem token list" in done.err
    assert (await desk.cli("token", "revoke", "idem_secret", "--reason", "r", "--yes")).code == 2
    async with database.connection() as connection:
        with pytest.raises(OperatorRefused):
            await tokens.token(connection, UUID(int=0))


async def test_a_list_is_of_one_tenant_where_it_is_asked_for(desk: Desk) -> None:
    for tenant in ("b", "a", "b"):
        await desk.cli("token", "create", tenant, "--label", f"of {tenant}")
    everybody: Any = (await desk.cli("token", "list", "--json")).data["tokens"]
    assert [each["tenant_id"] for each in everybody] == ["a", "b", "b"]
    assert len((await desk.cli("token", "list", "--tenant", "b", "--json")).data["tokens"]) == 2
    assert "of a" in (await desk.cli("token", "list")).out


async def test_it_needs_no_providers_secret_and_refuses_another_environment(desk: Desk) -> None:
    del desk.environment["BANK_TOKEN"]
    assert (await desk.cli("token", "create", "acme", "--label", "l")).code == 0
    desk.environment["IDEM_ENVIRONMENT"] = "production"
    done = await desk.cli("token", "create", "acme", "--label", "l")
    assert done.code == 2
    assert "wrong database" in done.err

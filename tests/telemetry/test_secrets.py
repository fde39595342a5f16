"""IB-175: what a provider echoes of our credentials, or of a card, is nowhere to be read."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from fix_accept import Acceptor
from fix_desk import CONFIGURATION, Desk
from fix_server import Asked, serving
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from idem.cli.base import opening
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.observe import logs, metrics

CARD = "4000056655665556"
SECRET = "keyed-token"


@dataclass
class Echo:
    """A provider that refuses every request and quotes it: the credentials, and a card number of its own."""

    url: str = ""
    quoted: list[str] = field(default_factory=list)

    def answer(self, asked: Asked) -> bytes:
        said = f"authorization: {asked.headers['authorization']}"
        self.quoted.append(said)
        error = {"code": "forbidden", "message": f"{said} may not charge {CARD}", "request": said, "card": CARD}
        body = json.dumps({"error": error}).encode()
        return (
            b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close\r\n"
            + f"X-Echo: {said}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )  # fmt: skip


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    async with serving(echo.answer) as echo.url:
        yield echo


TABLES = """
SELECT format('SELECT string_agg(t::text, chr(10)) FROM %I.%I t', table_schema, table_name)
  FROM information_schema.tables WHERE table_schema = 'idem' AND table_type = 'BASE TABLE'
"""
BYTES = "SELECT string_agg(encode(response_body, 'escape'), chr(10)) FROM idem.idempotency_keys"


def everything_stored(url: str) -> str:
    with psycopg.connect(url) as connection:
        queries = [row[0] for row in connection.execute(TABLES)] + [BYTES]
        return "\n".join(str(connection.execute(query).fetchone()) for query in queries)


async def test_ib_175_what_providers_echo_is_nowhere(
    desk: Desk, configuration: Path, echo: Echo, capfd: pytest.CaptureFixture[str]
) -> None:
    spine = desk.spine
    spine.catalogue = opened(desk, configuration, echo.url)
    spine.acceptor = Acceptor(spine.catalogue.operations, spine.catalogue.providers)
    intent = await desk.pending("k")
    with capture_logs() as lines:
        await spine.work()
    assert echo.quoted == [f"authorization: Bearer {SECRET}"], "the provider was called, with the credentials"
    assert await spine.letters(intent) == ["rejected"]
    shown = [
        await desk.cli("dlq", "list", "--json"),
        await desk.cli("dlq", "show", await desk.letter(intent, "rejected")),
        await desk.cli("dlq", "show", await desk.letter(intent, "rejected"), "--json"),
        await desk.cli("intents", "show", intent, "--json"),
        await desk.cli("intents", "show", intent),
        await desk.cli("status", "--json"),
    ]
    assert [each.code for each in shown] == [0] * len(shown)
    assert "403" in shown[1].out, "what was refused can still be understood"
    places = {
        "database": await asyncio.to_thread(everything_stored, spine.url),
        "logs": str(lines) + "".join(capfd.readouterr()),
        "command line": "".join(each.out + each.err for each in shown),
        "metrics": metrics.exposition()[0].decode(),
    }
    for place, text in places.items():
        for secret in (SECRET, CARD):
            assert secret not in text, place


def opened(desk: Desk, configuration: Path, url: str) -> Catalogue:
    """The desk's configuration, with the provider at this address."""
    configuration.write_text(CONFIGURATION.replace("ORIGIN", url))
    with mock.patch.dict(os.environ, desk.environment):
        return opening.catalogue(opening.configuration(None))


@pytest.mark.parametrize("error", [ValueError(f"bad {SECRET}"), KeyError(CARD), psycopg.DataError(f"token {SECRET}")])
def test_a_foreign_exception_is_told_without_its_text(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        said = logs.error_text(caught)
    assert type(error).__name__ in said
    assert SECRET not in said
    assert CARD not in said


def test_a_refusal_of_the_databases_own_is_told(db_url: str) -> None:
    with psycopg.connect(db_url) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("SELECT FROM idem.nowhere")
    assert logs.error_text(refused.value) == 'UndefinedTable 42P01 relation "idem.nowhere" does not exist'
    wrapped = DBAPIError("SELECT %(token)s", {"token": SECRET}, refused.value)
    assert logs.error_text(wrapped) == logs.error_text(refused.value)

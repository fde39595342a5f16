"""docs/adopt/send.md: its program is imported as it stands, and its mails go to a mail server by SMTP."""

import importlib.util
import re
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fix_accept import Acceptor
from fix_spine import Spine
from fix_sql import engine_of

from idem.decisions import Replay
from idem.outbox.database.pool import Database

PAGE = (Path(__file__).parents[2] / "docs" / "adopt" / "send.md").read_text()


class Mailbox(socketserver.ThreadingTCPServer):
    """As much of SMTP (RFC 5321) as a mail needs. `cut`: it hangs up when it has the mail, without a word."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Visit)
        self.mails: list[str] = []
        self.cut = False


class Visit(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.say("220 hello")
        while line := self.rfile.readline().decode().strip():
            match line.split(":")[0].split()[0].upper():
                case "RCPT" if "nobody@" in line:
                    self.say("550 no such mailbox")
                case "DATA":
                    self.say("354 go on")
                    mail = ""
                    while (text := self.rfile.readline().decode()) != ".\r\n":
                        mail += text
                    self.server.mails.append(mail)
                    if self.server.cut:
                        return
                    self.say("250 taken")
                case "QUIT":
                    self.say("221 bye")
                    return
                case _:
                    self.say("250 fine")

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def post(database: Database, db_url: str, tmp_path: Path, mailbox: Mailbox, monkeypatch: Any) -> Iterator[Spine]:
    program = tmp_path / "shop_of_the_page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    (tmp_path / "idem.toml").write_text('environment = "test"\n')
    monkeypatch.setenv("IDEM_CONFIG", str(tmp_path / "idem.toml"))
    spec = importlib.util.spec_from_file_location("shop_of_the_page", program)
    assert spec is not None and spec.loader is not None
    shop = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shop_of_the_page", shop)
    spec.loader.exec_module(shop)
    shop.HOST, shop.PORT = mailbox.server_address  # type: ignore[attr-defined]
    known = shop.idem.catalogue()
    yield Spine(database, cast(Any, None), known, Acceptor(known.operations, known.providers), db_url)


def accept(post: Spine, to: str = "alice@example.com", key: str = "k1") -> Any:
    params = {"to": to, "subject": "Your order", "text": "It is on its way."}
    with engine_of(post.url).begin() as connection:
        return post.acceptor.accept(connection, "t", "mails.send", key, params)


async def test_a_mail_goes_out_under_its_key(post: Spine, mailbox: Mailbox) -> None:
    intent = accept(post).intent_id
    row = await post.row(intent)
    await post.work()
    replay = accept(post)
    assert isinstance(replay, Replay) and replay.answer.status == 202
    assert len(mailbox.mails) == 1
    assert f"<{row['provider_key']}@example.com>" in mailbox.mails[0]


async def test_what_the_server_refuses_is_the_answer(post: Spine, mailbox: Mailbox) -> None:
    accept(post, "nobody@example.com")
    await post.work()
    replay = accept(post, "nobody@example.com")
    assert isinstance(replay, Replay) and replay.answer.status == 422


async def test_a_server_that_is_away_has_nothing(post: Spine, mailbox: Mailbox) -> None:
    mailbox.shutdown()
    mailbox.server_close()
    intent = accept(post).intent_id
    await post.work()
    await post.expect(intent, status="pending")


async def test_a_line_that_is_cut_is_decided_by_the_standing_order(post: Spine, mailbox: Mailbox) -> None:
    mailbox.cut = True
    intent = accept(post).intent_id
    await post.work()
    await post.expect(intent, status="unknown")
    await post.reconcile(after=2000, hasten=True)
    assert isinstance(accept(post), Replay)
    assert len(mailbox.mails) == 1

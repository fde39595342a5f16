"""Who may sign a provider's certificate: the public authorities, or those that an account or SSL_CERT_FILE names."""

import ast
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fix_certificates import certificate, pem, with_key
from fix_server import serving
from fix_source import trees
from fix_waiting import stopping

from idem.errors import ConfigError
from idem.outbox.calls.lane import Lane
from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.config import explain, load
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.values import clock
from idem.outcomes import NotExecuted, Outcome, Succeeded

CONFIGURATION = """
[providers.bank]
key = { carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }
errors = { shape = "/error/code" }
object = { reference = "/id" }
outcome = [{ says = "final" }]
accounts.main = { origin = "https://localhost:PORT", authorization = { env = "BANK_TOKEN" } CA }
[operations.pay]
provider = "bank"
path = "/payments"
params = { type = "object" }
"""


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """A provider behind a certificate that only `own.pem` has signed; its answers are payments."""
    own = certificate("an authority of the bank's own")
    tmp_path.joinpath("own.pem").write_bytes(pem(own[0]))
    tmp_path.joinpath("other.pem").write_bytes(pem(certificate("another authority")[0]))
    tmp_path.joinpath("leaf.pem").write_bytes(with_key(*certificate("localhost", own)))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "leaf.pem")

    async with serving(lambda _: (200, b'{"id": "pay_1"}'), tls=tls) as url:
        yield int(url.rpartition(":")[2])


def configured(folder: Path, port: int, ca: str = "") -> Path:
    file = folder / "idem.toml"
    file.write_text(CONFIGURATION.replace("PORT", str(port)).replace("CA", f', ca_file = "{ca}"' if ca else ""))
    return file


async def called(file: Path) -> Outcome:
    """What a call of this configuration comes to."""
    provider = load(file, {"BANK_TOKEN": "t"}).providers["bank"]
    async with stopping(Lane(provider, provider.accounts["main"], slots=1, margin=1)) as lane:
        request = FrozenRequest("POST", "/payments", {"content-type": "application/json"}, b"{}")
        outcome, _ = await lane.send("row", request, lease_ends=clock.boottime() + 60, start=lambda: True)
    return outcome


async def test_ib_187_an_authority_that_the_account_names_is_trusted(port: int, tmp_path: Path) -> None:
    assert isinstance(await called(configured(tmp_path, port)), NotExecuted), "proven not sent: nobody has signed it"
    assert isinstance(await called(configured(tmp_path, port, "own.pem")), Succeeded)
    assert isinstance(await called(configured(tmp_path, port, str(tmp_path / "own.pem"))), Succeeded)
    assert isinstance(await called(configured(tmp_path, port, "other.pem")), NotExecuted)


async def test_ib_187_one_that_the_environment_names_is_trusted(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    assert isinstance(await called(configured(tmp_path, port)), Succeeded)
    assert isinstance(await called(configured(tmp_path, port, "other.pem")), NotExecuted), "the account's own word"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE.*No such file"):
        ssl_context()
    monkeypatch.setenv("SSL_CERT_FILE", "")
    assert isinstance(await called(configured(tmp_path, port)), NotExecuted)


def test_a_file_without_certificates_is_a_mistake(tmp_path: Path) -> None:
    for name, content in (("absent.pem", None), ("empty.pem", b""), ("other.pem", b"no certificate")):
        if content is not None:
            tmp_path.joinpath(name).write_bytes(content)
        (finding,) = [f for f in explain(configured(tmp_path, 1, name), {"BANK_TOKEN": "t"}) if f.level == "error"]
        assert finding.where == "providers.bank.accounts.main.ca_file"
        assert name in finding.what


async def test_session_keys_are_written_nowhere(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSLKEYLOGFILE is for who debugs his own browser: here it would be the keys of everybody's payments."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    tmp_path.joinpath("fresh.pem").write_bytes(tmp_path.joinpath("own.pem").read_bytes())
    assert isinstance(await called(configured(tmp_path, port, "fresh.pem")), Succeeded)
    assert not tmp_path.joinpath("keys").exists()


CLIENTS = {"httpx.Client", "httpx.AsyncClient"}
OBEYING = {"ssl.create_default_context", "httpx.create_ssl_context", "ssl._create_unverified_context"}


def test_every_tls_setting_of_ours_is_made_in_one_place() -> None:
    """So that no other one obeys the environment: not by the library's default, which a client without `verify` has."""
    for file, tree in trees("outbox", "reconciler", "sweeper", "cli", "testing", "idem", holding=r"\b(httpx|ssl)\."):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            assert name not in OBEYING, file
            given = {keyword.arg for keyword in node.keywords}
            assert name not in CLIENTS or given & {"verify", "transport"}, (file, node.lineno)
            assert name != "httpx.AsyncHTTPTransport" or "verify" in given, (file, node.lineno)

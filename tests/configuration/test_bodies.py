"""Bodies that could never be sent: said when the configuration is read, and not by a dead letter for every accept."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from idem.errors import Unrenderable
from idem.outbox.config import Configuration, explain, load

FORM = 'encoding = "form"\n'
TAG = (
    'deployment_tag = { at = "/metadata/idem_deployment", key_at = "/metadata/idem_key", not_in = ["/v1/*/confirm"] }\n'
)
KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
IN_BODY = 'carrier = "body", name = "request_id"'


def text(body: str, provider: str = "", key: str = 'carrier = "header", name = "K"', path: str = "/v1/payments") -> str:
    return f"""
environment = "production"
database.url = "postgresql://idem@localhost/idem"
[providers.bank]
{provider}
verified = "{date.today()}"
key = {{ {key}, replay = "stored", retention = "24h" }}
errors = {{ shape = "/error/code" }}
outcome = [{{ says = "final", when = {{ "/status" = "succeeded" }} }}]
accounts.main = {{ origin = "https://bank.example" }}
[operations.pay]
provider = "bank"
path = "{path}"
params = {{ type = "object", required = ["a", "b"], properties = {{ a = {{}}, b = {{}}, c = {{}} }} }}
{body}
"""


def found(tmp_path: Path, written: str) -> dict[str, str]:
    path = tmp_path / "idem.toml"
    path.write_text(written)
    return {each.where: f"{each.level}: {each.what}. {each.do}" for each in explain(path, {})}


@pytest.mark.parametrize(
    ("body", "provider", "key", "word"),
    [
        *(
            (f"body = {body}", FORM, 'carrier = "none"', "not an object, and a form has members only")
            for body in ("true", "-1", "[1]", '"x"', "[[]]", '"{idem.key}"')
        ),
        *(
            (f"body = {body}", FORM + TAG, 'carrier = "none"', "the way is")
            for body in ("true", "-1", "[1]", '"x"', "[[]]", "{ metadata = true }")
        ),
        ("body = { metadata = true }", TAG, 'carrier = "none"', "the way is not an object"),
        ('body = { metadata = { idem_deployment = "test" } }', TAG, 'carrier = "none"', "writes another value there"),
        ('body = { "metadata[idem_key]" = "x" }', FORM + TAG, 'carrier = "none"', "two members of the form"),
        ('body = { items = [{ "a[b]" = "{a}" }] }', FORM, 'carrier = "none"', "has a bracket in its name"),
        ('body = { metadata = { "x[{a}]" = 1 } }', FORM, 'carrier = "none"', "has a bracket in its name"),
        ("body = [1]", "", IN_BODY, "the body is not an object"),
        ("", "", IN_BODY, "the body is not an object"),
        ('body = { request_id = "mine" }', "", IN_BODY, "set by idem alone"),
    ],
)
def test_each_is_an_error(tmp_path: Path, body: str, provider: str, key: str, word: str) -> None:
    said = found(tmp_path, text(body, provider, key))["operations.pay.body"]
    assert said.startswith("error") and word in said and "deployment_tag of provider bank" in said, said


@pytest.mark.parametrize(
    ("body", "provider", "key", "path"),
    [
        ("body = true", "", "", "/v1/payments"),
        ("", FORM + TAG, "", "/v1/payments"),
        ('body = "{a}"', FORM + TAG, "", "/v1/payments"),
        ('body = { metadata = "{a}" }', FORM + TAG, "", "/v1/payments"),
        ('body = { metadata = { idem_deployment = "{a}", "{b}" = 1, "x{a}" = 2 } }', FORM + TAG, "", "/v1/payments"),
        ('body = { metadata = { idem_deployment = "production" } }', TAG, "", "/v1/payments"),
        ('body = { metadata = { "x[{c?}]" = 1 } }', FORM, "", "/v1/payments"),
        ('body = { "metadata[{a}]" = 1, "metadata[order]" = "{b}", list = ["{a}"] }', FORM + TAG, "", "/v1/payments"),
        ("body = { metadata = true }", TAG, "", "/v1/{a}/confirm"),
        ("body = { metadata = true }", TAG, "", "/v1/x/{a}"),
        ('body = "{a}"', "", IN_BODY, "/v1/payments"),
        ('body = { request_id = "{idem.key}" }', "", IN_BODY, "/v1/payments"),
    ],
)
def test_where_a_place_decides_nothing_is_said(tmp_path: Path, body: str, provider: str, key: str, path: str) -> None:
    assert found(tmp_path, text(body, provider, key or 'carrier = "header", name = "K"', path)) == {}


def test_the_example_of_stripe(tmp_path: Path) -> None:
    example = (Path(__file__).parents[2] / "examples" / "providers" / "stripe.toml").read_text()
    written = example.replace('metadata = { order = "{order?}" }', "metadata = true")
    assert written != example
    (tmp_path / "idem.toml").write_text(written)
    said = {each.where: str(each) for each in explain(tmp_path / "idem.toml", {})}
    assert "/metadata/idem_deployment of every body" in said['operations."payments.create".body']


def test_the_header_of_the_key_is_not_the_operations(tmp_path: Path) -> None:
    said = found(tmp_path, text('headers = { k = "mine" }\nbody = { a = 1 }'))
    assert "idem sets it" in said["operations.pay.headers.k"]


def test_a_rule_of_no_status_is_an_error(tmp_path: Path) -> None:
    written = text("body = { a = 1 }").replace('{ says = "final"', '{ says = "final", status = []')
    assert "the rule would never hold" in found(tmp_path, written)["providers.bank.outcome.0.status"]


def test_a_cancel_that_cannot_be_sent_or_done_is_an_error(tmp_path: Path) -> None:
    cancel = 'cancel_by_key = { path = "/cancel", body = { keys = [{ "a[b]" = "{idem.key}" }] } }\n'
    where = "providers.bank.cancel_by_key"
    assert "bracket in its name" in found(tmp_path, text("body = { a = 1 }", FORM + cancel))[f"{where}.body"]
    assert found(tmp_path, text("body = { a = 1 }", cancel)) == {}
    never = cancel.replace("path =", "done = [], path =")
    assert "ever be done" in found(tmp_path, text("body = { a = 1 }", never))[f"{where}.done"]


def asked(tmp_path: Path, provider: str, body: str, **params: Any) -> bytes:
    (tmp_path / "idem.toml").write_text(text(body, provider))
    configuration: Configuration = load(tmp_path / "idem.toml", {})
    request = configuration.operations["pay"].request({"b": 1, **params})
    return configuration.providers["bank"].freeze(request, KEY).body


@pytest.mark.parametrize("name", ["metadata[{a}]", "{a}", "x{a}{idem.key}"])
def test_a_clients_bracket_in_a_members_name_chooses_no_other_member(tmp_path: Path, name: str) -> None:
    body = f'body = {{ "{name}" = 1 }}'
    assert b"order" in asked(tmp_path, FORM, body, a="order")
    for bracket in ("a][b", "x]", "metadata[idem_key"):
        with pytest.raises(Unrenderable, match="the param a has a bracket"):
            asked(tmp_path, FORM, body, a=bracket)
    assert b"a][b" in asked(tmp_path, "", body, a="a][b")

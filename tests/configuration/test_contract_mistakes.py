"""Mistakes in what a provider carries and means: tag, encoding, codes, statuses, credentials, standing orders."""

from pathlib import Path

import pytest
from configuration.mistakes import SOUND, within

from idem.outbox.config import explain

MAIN = ".accounts.main"
BASIC = 'basic = { user = { env = "U" } }'
SIGNED = 'signature = { secret = { env = "S" }'
VARIABLES = {"S": "shared", "T": "token", "U": "user", "COLON": "us:er"}


def found(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {each.where: f"{each.level}: {each.what}. {each.do}" for each in explain(path, VARIABLES)}


def test_the_sound_one(tmp_path: Path) -> None:
    assert found(tmp_path / "idem.toml", SOUND) == {}
    carried = SOUND.replace("[providers.bank]", '[providers.bank]\nanswers_carry = "Request-Id"', 1)
    assert found(tmp_path / "idem.toml", carried) == {}


MISTAKES = within(
    "providers.bank",
    "[providers.bank]",
    [
        ('value_at_risk = "little"', ".value_at_risk", "'some' or 'none'"),
        ('encoding = "xml"', ".encoding", "'json' or 'form'"),
        *(
            (f'answers_carry = "{header}"', ".answers_carry", word)
            for header, word in [
                ("Content-Type", "error: any HTTP server sends the header Content-Type"),
                ("Via", "error: any HTTP server"),
                ("X-Request-ID", "warning: many gateways set X-Request-ID themselves"),
                ("Request Id", "not the name of a header"),
            ]
        ),
        ('retention_max = "1h"', ".retention_max", "less than key.ret"),
        ('retention_max = "60d"', "operations.pay.key_ttl", "memory of 60d"),
        ('deployment_tag = { at = "deployment" }', ".deployment_tag.at", "not a JSON pointer"),
        ('deployment_tag = { at = "" }', ".deployment_tag.at", "not the whole of it"),
        ('deployment_tag.key_at = "/a"', ".deployment_tag.at", "missing"),
        ('deployment_tag = { at = "/a", key_at = "/a/b" }', ".deployment_tag", "one place"),
        *(
            (f"object = {{ {written} }}\n", ".object" + where, word)
            for written, where, word in [
                ('statuses = { final = ["ok"] }', "", "say where it is"),
                (
                    'status = "/s", statuses = { final = ["ok"], pending = ["ok"] }',
                    ".statuses",
                    "final and under pending",
                ),
                ('status = "/s", statuses = { later_fact = ["a", "a"] }', ".statuses", "twice under later_fact"),
                ('status = "/s", statuses = { finale = ["ok"] }', ".statuses.finale", "must be one of"),
            ]
        ),
        *(
            ('{ shape = "/error/code" }', f"{{ {written} }}", ".errors" + where, word)
            for written, where, word in [
                ('shape = "/e", codes = { refused = ["a"] }', "", "say both"),
                ('code = "/e", codes = { refused = ["a"] }', "", "say both"),
                ('shape = ["/e", "f"]', ".shape", "not a JSON pointer"),
            ]
        ),
        *(
            ('{ shape = "/error/code" }', f'{{ shape = "/e", code = "/e", codes = {{ {written} }} }}', where, word)
            for written, where, word in [
                ('refused = ["a"], "not_executed:config" = ["a"]', ".errors", "refused and under not_executed:config"),
                ('refused = ["a", "a"]', ".errors", "twice under"),
                ('refused = [7, "7"]', ".errors", "twice under"),
                ('later_fact = ["a"]', ".errors", "only events tell"),
                ('declined = ["a"]', ".errors.codes.declined", "one of"),
            ]
        ),
        ('says = "final"', 'says = "later_fact", status = 200', ".outcome.0", "a body alone"),
        ('[{ says = "final"', '[{ says = "later_fact" }, { says = "final"', ".outcome.0", "a body alone"),
        ('says = "final"', 'says = "ambiguous:cached"', ".outcome.0", "must name its HTTP status"),
        (
            'errors = { shape = "/error/code" }\noutcome = [',
            'outcome = [{ says = "ambiguous:cached", status = "5xx" }, ',
            ".outcome.0",
            "this rule never holds",
        ),
        *(
            (
                '{ origin = "https://bank.example" }',
                f'{{ origin = "https://bank.example", {written} }}',
                MAIN + where,
                word,
            )
            for written, where, word in [
                ('basic = { user = "u" }', ".basic.user", "a secret never stands in idem.toml"),
                ('basic = { password = { env = "P" } }', ".basic.user", "missing"),
                ('basic = { user = { env = "NO_USER" } }', ".basic.user", "NO_USER is not set"),
                (f'{BASIC}, authorization = {{ env = "T" }}', ".headers", "authorization is said twice"),
                ('basic = { user = { env = "COLON" } }', ".basic.user", "has a colon"),
                ('signature = { secret = { env = "NO_KEY" } }', ".signature.secret", "NO_KEY is not set"),
                (
                    f'{SIGNED} }}, headers = {{ X-TIMESTAMP = {{ env = "S" }} }}',
                    ".headers",
                    "x-timestamp is said twice",
                ),
                (f'{SIGNED}, header = "idempotency-key" }}', ".headers", "carries the provider key"),
                (f'{SIGNED}, header = "x-timestamp" }}', ".signature", "share one header"),
                (f'{SIGNED}, over = "{{key}}" }}', ".signature.over", "cannot be signed"),
                (f'{SIGNED}, over = "{{body?}}" }}', ".signature.over", "cannot be signed"),
                (f'{SIGNED}, over = "{{" }}', ".signature.over", "lone"),
                (f'{SIGNED}, over = "{{body}}" }}', ".signature.over", "leaves out path"),
                (f'{SIGNED}, algorithm = "md5" }}', ".signature.algorithm", "'sha256'"),
                (f'{SIGNED}, header = "Host" }}', ".signature.header", "not a header"),
                (f'{SIGNED}, prefix = "é" }}', ".signature.prefix", "no header can carry"),
            ]
        ),
    ],
)


@pytest.mark.parametrize(("old", "new", "where", "word"), MISTAKES)
def test_each_is_found_and_no_secret_is_quoted(tmp_path: Path, old: str, new: str, where: str, word: str) -> None:
    assert old in SOUND
    findings = found(tmp_path / "idem.toml", SOUND.replace(old, new, 1))
    assert word in findings[where], findings
    assert not any(secret in str(findings) for secret in ("shared", "us:er"))


def test_the_tag_and_the_key_cannot_have_one_place(tmp_path: Path) -> None:
    text = SOUND.replace('carrier = "header", name = "Idempotency-Key"', 'carrier = "body", name = "a"')
    text = text.replace("[providers.bank]", '[providers.bank]\ndeployment_tag = { at = "/b", key_at = "/a/b" }', 1)
    assert "carried at /a/b (key.name)" in found(tmp_path / "idem.toml", text)["providers.bank.deployment_tag"]


def test_an_operation_and_its_account_cannot_set_one_header(tmp_path: Path) -> None:
    text = SOUND.replace('"https://bank.example"', '"https://bank.example", signature = { secret = { env = "S" } }')
    text = text.replace('path = "/payments"', 'path = "/payments"\nheaders = { x-signature = "mine" }')
    assert (
        "the account at provider bank sets it"
        in found(tmp_path / "idem.toml", text)["operations.pay.headers.x-signature"]
    )


@pytest.mark.parametrize("order", ["assume_done", "assume_not_done"])
def test_a_standing_order_is_taken_where_no_value_is_at_risk(tmp_path: Path, order: str) -> None:
    said = f'on_unsettleable = "{order}"\n'
    text = SOUND.replace('replay = "stored", ', 'replay = "none", ').replace(
        "[providers.bank]\n", f"[providers.bank]\n{said}", 1
    )
    assert "value is at risk" in found(tmp_path / "idem.toml", text)["providers.bank.on_unsettleable"]
    assert found(tmp_path / "idem.toml", text.replace(said, f'{said}value_at_risk = "none"\n')) == {}


def test_the_tag_carries_the_key_that_a_look_up_by_reference_needs(tmp_path: Path) -> None:
    look = 'lookup.by_reference = { path = "/payments?note={idem.key}", match = "/metadata/idem_key" }\n'
    text = SOUND.replace("[providers.bank]\n", f"[providers.bank]\n{look}", 1)
    assert "does not carry the key" in found(tmp_path / "idem.toml", text)["operations.pay.body"]
    tag = 'deployment_tag = { at = "/metadata/idem_deployment", key_at = "/metadata/idem_key" }\n'
    assert found(tmp_path / "idem.toml", text.replace(look, look + tag)) == {}


def test_no_allowance_for_a_pause_is_warned_of(tmp_path: Path) -> None:
    """A process that was frozen after its last check sends when it wakes, long after the flight limit."""
    path = tmp_path / "idem.toml"
    complaint = found(path, SOUND.replace("[providers.bank]", '[providers.bank]\npause_allowance = "0s"'))
    assert "providers.bank.pause_allowance" in complaint, complaint
    assert complaint["providers.bank.pause_allowance"].startswith("warning: a process that was frozen")

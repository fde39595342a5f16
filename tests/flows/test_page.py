"""The page about operations of several calls: its idem.toml is sound, and its Python makes the same steps."""

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from idem import Answer, Idem, Request, Results, Step
from idem.outbox.config import explain, load
from idem.outbox.domain.operation import OperationSpec

PAGE = (Path(__file__).parents[2] / "docs" / "adopt" / "flows.md").read_text()
PROVIDER = """
[providers.NAME]
verified = "TODAY"
key = { carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }
errors = { shape = "/error/code" }
outcome = [{ says = "final", when = { "/status" = "succeeded" } }]
object = { reference = "/id", status = "/status" }
accounts.main = { origin = "https://NAME.example" }
"""
PROVIDERS = 'environment = "test"\n' + "".join(
    PROVIDER.replace("NAME", name).replace("TODAY", str(date.today())) for name in ("bank", "fleet", "mail")
)


class Ride(BaseModel):
    ride: str
    amount: int
    email: str | None = None


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def order(operation: OperationSpec) -> list[tuple[Any, ...]]:
    steps = [(each.step, each.provider) for each in operation.steps if each.step is not None]
    return [(s.name, to, s.on_refusal, s.undoes, s.completes, s.when is not None) for s, to in steps]


def test_both_forms_are_the_same_flow(tmp_path: Path) -> None:
    written = tmp_path / "idem.toml"
    written.write_text(PROVIDERS + block("toml"))
    assert [str(each) for each in explain(written, {})] == []
    declared = load(written, {}).operations["rides.book"]
    written.write_text(PROVIDERS)
    known: Mapping[str, Any] = {
        "Answer": Answer, "Request": Request, "Results": Results, "Step": Step, "Ride": Ride,
        "request_refund": lambda p, results: Request("POST", f"/payments/{results['charge'].reference}/refunds"),
        "request_receipt": lambda p, results: Request("POST", "/messages", json={"to": p.email}),
        "idem": (made := Idem(written, env={})),
    }  # fmt: skip
    exec(block("python"), {**known})
    assert order(made.catalogue().operations["rides.book"]) == order(declared)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('ordering_key = "/riid"', 'operations."rides.book".ordering_key'),
        ('approve = { at = "/amuont", above = 1 }', 'operations."rides.book".approve.at'),
        ('approve = "alwas"', 'it must be "always", or a table like'),
        ('approve = { at = "/amount", over = 1 }', 'it must be "always", or a table like'),
    ],
)
def test_a_pointer_to_no_param_and_a_rule_that_is_none_are_named_once(tmp_path: Path, written: str, told: str) -> None:
    file = tmp_path / "idem.toml"
    file.write_text(PROVIDERS + block("toml").replace('label = "ride {ride}"', written))
    found = [str(each) for each in explain(file, {}) if each.level == "error"]
    assert len(found) == 1
    assert told in found[0]

"""Steps in Python that make no flow: each mistake is a ConfigError that names the step and says what to do."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from idem import Idem, Request, Step
from idem.errors import ConfigError


@pytest.fixture
def idem(tmp_path: Path) -> Idem:
    (tmp_path / "idem.toml").write_text(f"""
environment = "test"
[providers.bank]
verified = "{date.today()}"
key = {{ carrier = "header", name = "Idempotency-Key", replay = "stored", retention = "24h" }}
errors = {{ shape = "/error/code" }}
outcome = [{{ says = "final", when = {{ "/status" = "succeeded" }} }}]
accounts.main = {{ origin = "https://bank.example" }}
accounts.second = {{ origin = "https://eu.bank.example" }}
""")
    return Idem(tmp_path / "idem.toml", env={})


def call(name: Any, **more: Any) -> Step:
    def request(params: Any, results: Any) -> Request:
        return Request("POST", "/payments", json={})

    return Step(name, **{"provider": "bank", "account": "main", "request": request, **more})


REFUND: Callable[..., Step] = lambda **more: call("refund", **more)  # noqa: E731

MISTAKES: list[tuple[Any, dict[str, Any], str]] = [
    ([call("charge")], {"provider": "bank"}, 'operations."rides.book": each of its steps has a call of its own'),
    ([call("charge")], {"inline": True}, "each of its steps has a call of its own"),
    ([call("charge")], {"account": "main"}, "say account= at each step"),
    ([call("charge")], {"completes_when": "exists"}, 'completes_when: .*say "step:NAME"'),
    ([call("charge")], {"completes_when": "step:chrge"}, "Did you mean charge"),
    ("charge", {}, r"steps= is a list of Step\(…\)"),
    (["charge"], {}, r"steps= is a list of Step\(…\), and 'charge' is none"),
    ([call("charge", undo="refund")], {}, r"steps= is a list of Step\(…\), and 'refund' is none"),
    ([call("charge", undo=REFUND(undo=call("x")))], {}, "refund: a step that undoes another one is not undone itself"),
    ([call("charge", undo=REFUND(on_refusal="stop"))], {}, r"steps\.charge\.undo\.on_refusal: .*an operator decides"),
    ([call("charge", provider=None, request=None)], {}, r"steps\.charge: say provider= with request=, or run="),
    ([call("charge", run=lambda db, p, r: None)], {}, r"steps\.charge: say provider= with request=, or run="),
    ([call("charge", request=None)], {}, r"steps\.charge: say how its request is made"),
    ([call("charge", request=lambda p: None)], {}, r"steps\.charge: request= takes the params and the results so far"),
    ([call("charge", when=lambda p: True)], {}, r"steps\.charge: when= takes the params and the results so far"),
    (
        [call("charge", provider="bonk")],
        {},
        r"steps\.charge\.provider: there is no provider 'bonk'\. Did you mean bank",
    ),
    ([call("charge", provider="local")], {}, r"steps\.charge\.provider: 'local' is a reserved name"),
    ([call("charge", account=None)], {}, r"steps\.charge\.account: provider bank has several accounts"),
    ([call("charge", account="man")], {}, r"steps\.charge\.account: .*Did you mean main"),
    ([call("charge", completes_when="end")], {}, r"steps\.charge\.completes_when: it must be one of"),
    ([call("Charge")], {}, "'Charge' is no name of a step"),
    ([call(7)], {}, "7 is no name of a step"),
    ([call("charge"), call("charge", on_refusal="operator")], {}, "there are two steps charge"),
    ([call("charge"), call("ship")], {}, r"steps\.ship\.on_refusal: nothing says what follows"),
    ([call("charge"), call("ship", on_refusal="undo")], {}, r"steps\.ship\.on_refusal: it is 'undo'"),
    ([call("charge"), call("ship", on_refusal="compensate")], {}, "none has an undo"),
    ([call("charge", undo=REFUND()), call("ship", on_refusal="stop")], {}, "stop would leave charge done"),
    ([call("charge")], {"request": lambda p: Request("POST", "/")}, "each of its steps has a call of its own"),
    ([call(f"s{n}", on_refusal="operator") for n in range(21)], {}, "it has 21 steps"),
]


@pytest.mark.parametrize(("steps", "more", "said"), MISTAKES, ids=[said[:40] for *_, said in MISTAKES])
def test_each_is_a_sentence(idem: Idem, steps: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        idem.operation("rides.book", steps=steps, **more)


def test_all_that_is_wrong_with_the_order_of_steps_is_said_at_once(idem: Idem) -> None:
    with pytest.raises(ConfigError) as raised:
        idem.operation("rides.book", steps=[call("charge"), call("ship"), call("mail")], completes_when="step:x")
    assert len(raised.value.problems) == 3


def test_each_step_has_the_completion_of_its_own_call(idem: Idem) -> None:
    steps = [call("charge", completes_when="exists"), call("ship", on_refusal="operator")]
    idem.operation("rides.book", steps=steps, completes_when="step:charge", key_ttl="4d")
    made = idem.catalogue().operations["rides.book"]
    assert [each.completes_when for each in made.steps] == ["exists", "final"]
    assert [each.step.completes for each in made.steps if each.step is not None] == [True, False]
    assert {each.key_ttl for each in (made, *made.steps)} == {4 * 86400}

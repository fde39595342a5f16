"""Mistakes in what an application defines: each is refused at the definition, and says what to write instead."""

from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI

from idem import Answer, ConfigError, Idem, Misuse, Request


async def waits(params: Any) -> Request:
    return Request("POST", "/x")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"answer": lambda: Answer(201)}, "answer= takes the outcome"),
    ({"answer": {"status": 201}}, "answer= .* give a function, not {'status': 201}"),
    ({"answer": waits}, "answer= .* not `async def`"),
    ({"label": 5}, "label= .* give a function, not 5"),
    ({"interim": 5}, "interim= .* give a function, not 5"),
    ({"request": "POST /x"}, "request= takes the params, and returns a Request: give a function"),
    ({"request": lambda: 1}, r"request= .* has the parameters \(\)"),
    ({"request": waits}, "request= .* write it with `def`, not `async def`"),
    ({"model": 5}, "5 is not a type that pydantic knows"),
    ({"inline": "x"}, "inline: it is 'x', but must be of type bool"),
    ({"short_ttl": "yes"}, "short_ttl: it is 'yes', but must be of type bool"),
    ({"max_redrives": "5"}, "max_redrives: it is '5', but must be of type int"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_a_wrong_option_is_refused_where_it_is_defined(idem_toml: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf'operations."o.x".*{said}'):
        Idem(idem_toml).operation("o.x", **options)


@pytest.mark.parametrize("tenant", ["acme", 5])
def test_a_tenant_that_is_not_a_dependency_is_refused_at_once(idem_toml: Path, tenant: Any) -> None:
    with pytest.raises(ConfigError, match=r"tenant= is a dependency .* give a function"):
        Idem(idem_toml, tenant=tenant)


@pytest.mark.parametrize("made", [{"method": "POST"}, Request(cast("str", 5), "/x"), Request("POST", cast("str", 5))])
def test_what_is_not_a_request_names_the_operation_and_what_to_return(idem_toml: Path, made: Any) -> None:
    charge = Idem(idem_toml).operation("o.x", provider="ledger", request=lambda params: made)
    with pytest.raises(ConfigError, match=r'operations."o.x": request= returned .*: return Request\('):
        charge.spec.request({})


NAMELESS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("operation", (5,), {}, "operations.5: the name must be text"),
    ("provider", (5,), {"send": waits}, "providers.5: the name must be text"),
    ("provider", ("x5",), {"send": "f"}, "providers.x5: send= must be a function, not 'f'"),
]


@pytest.mark.parametrize(("method", "given", "options", "said"), NAMELESS)
def test_what_has_no_name_or_function_leaves_nothing(
    idem_toml: Path, method: str, given: tuple[Any, ...], options: dict[str, Any], said: str
) -> None:
    idem = Idem(idem_toml)
    with pytest.raises(ConfigError, match=said):
        getattr(idem, method)(*given, **options)
    assert "o.x" in idem.operation("o.x").name
    assert "ledger" in idem.accepting().providers


@pytest.mark.parametrize("method", ["begin", "begin_async"])
def test_a_wrong_word_of_begin_is_named(idem_toml: Path, method: str) -> None:
    note = Idem(idem_toml).operation("o.x")
    for words, said in (({}, "it needs key="), ({"kee": "k"}, "it does not know kee=")):
        with pytest.raises(Misuse, match=rf"o\.x: {method}\(\): {said}"):
            getattr(note, method)(**words)


def test_a_request_is_called_by_its_public_name() -> None:
    with pytest.raises(TypeError, match=r"^Request\.__init__\(\) got an unexpected keyword argument 'jsn'"):
        cast("Any", Request)("POST", "/x", jsn={})


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [(5, {}, "give a function, not 5"), (print, {"name": 5}, "name is 5, but must be text")],
)
def test_a_handler_that_is_not_one(idem_toml: Path, function: Any, options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"o\.x.*{said}"):
        Idem(idem_toml).operation("o.x").on_settled(function, **options)


def test_exempt_routes_are_a_list(idem_toml: Path) -> None:
    with pytest.raises(Misuse, match=r"exempt= is a list of routes: give \['POST /x'\]"):
        Idem(idem_toml).audit(FastAPI(), exempt="POST /x")


@pytest.mark.parametrize("status", ["x", None, True])
def test_an_answer_has_a_number_as_status(status: Any) -> None:
    with pytest.raises(TypeError, match="status of an Answer is a whole number"):
        Answer(status)

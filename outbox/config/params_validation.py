"""Params against a JSON Schema (Draft 2020-12). References to other documents are refused: nothing is fetched.

jsonschema is loaded by the first schema: an application whose params are pydantic's has none.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from idem.outbox.config.schema_checks import message, references
from idem.outbox.config.schema_cost import Steps, TooCostly
from idem.outbox.values import json_pointer
from idem.outbox.values.errors import ParamsInvalid

MAX_PROBLEMS: Final = 20

TOO_COSTLY: Final = (
    "checking this takes too many steps: it has too many values for the alternatives of the operation's schema. Send "
    "less at once; the schema can have fewer alternatives, or tell them apart by a property"
)
TOO_DEEP: Final = "this is nested too deeply for the operation's schema"


def validator(schema: Any) -> Callable[[Any], None]:
    """A function that raises ParamsInvalid, with JSON pointers, for params that the schema refuses.

    Params that cost more steps than they may (`steps`) are refused too. Inside `steps.at_once` the function raises
    NotAtOnce.
    """
    if not schema:
        return lambda params: None
    from idem.outbox.config.schema_evaluation import ErrorCollector, Evaluator, Plan, named
    from idem.outbox.config.schema_keywords import KEYWORDS

    plan = Plan(schema, KEYWORDS, references(schema))

    def validate(params: Any) -> None:
        problems: list[tuple[str, str]] = []
        try:
            value, count = named(params)
            evaluator = Evaluator(plan, Steps(count))
            if evaluator.holds(schema, value):
                return
            for error in islice(ErrorCollector(evaluator).descend(value, schema), MAX_PROBLEMS):
                problems.append((json_pointer.render(error.path), message(error)))
        except TooCostly:
            problems = problems or [("", TOO_COSTLY)]
        except RecursionError:
            problems = problems or [("", TOO_DEEP)]
        raise ParamsInvalid(sorted(problems))

    return validate

"""Budgets of hypothesis: a few examples for every property in `make test`, many in `make prove`.

`layers` imports this before a module that uses hypothesis, so no test names a budget of its own.
`IDEM_TEST_EXAMPLES=20000` sets another number of examples.
"""

import os
from typing import Any

from hypothesis import HealthCheck, example, settings

# All examples of a test share its function-scoped fixtures, so each such test resets what it must.
QUIET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)

for name, examples in (("quick", 25), ("prove", 400)):
    chosen = int(os.environ.get("IDEM_TEST_EXAMPLES", examples))
    settings.register_profile(name, max_examples=chosen, deadline=None, suppress_health_check=QUIET)
settings.load_profile(os.environ.get("IDEM_TEST_PROFILE", "quick"))


def examples(*cases: Any) -> Any:
    """Always try a property with these examples too; a tuple is several arguments."""

    def with_them(test: Any) -> Any:
        for case in cases:
            test = example(*case if isinstance(case, tuple) else (case,))(test)
        return test

    return with_them

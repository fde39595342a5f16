"""The options that Python takes are the settings of idem.toml: same names, same choices."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from idem.application import definition
from idem.application.options import OperationOptions, ProviderOptions
from idem.outbox.config.operation_settings import OperationSettings
from idem.outbox.config.provider_settings import ProviderSettings

CASES: list[tuple[Any, Any, frozenset[str], frozenset[str]]] = [
    (OperationOptions, OperationSettings, definition.OF_THE_FILE | {"provider", "approve"}, definition.LEASES),
    (ProviderOptions, ProviderSettings, frozenset(), frozenset({"send", "secret_key"})),
]


def choices(hint: Any) -> set[Any]:
    """The words of each Literal in a type."""
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {word for part in get_args(hint) for word in choices(part)}


@pytest.mark.parametrize(("options", "settings", "left_out", "more"), CASES)
def test_an_option_is_a_setting_with_the_same_choices(
    options: Any, settings: Any, left_out: frozenset[str], more: frozenset[str]
) -> None:
    hints = get_type_hints(options)
    assert hints.keys() - more == settings.model_fields.keys() - left_out
    for name in hints.keys() - more:
        assert choices(hints[name]) == choices(settings.model_fields[name].annotation), name

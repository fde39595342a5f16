"""Settings with other values of what is a constant of the product: for tests that need small batches or short waits."""

from typing import Any, TypeVar

from pydantic import BaseModel

Settings = TypeVar("Settings", bound=BaseModel)


def with_constants(settings: Settings, **values: Any) -> Settings:
    """These settings, with other constants (`ClassVar`) for this object alone."""
    for name in values:
        assert hasattr(type(settings), name), f"{type(settings).__name__} has no constant {name}"
    settings.__dict__.update(values)
    return settings

"""Settings with other values for constants of the product, for tests that need small batches or short waits."""

from typing import Any, TypeVar

from pydantic import BaseModel

Settings = TypeVar("Settings", bound=BaseModel)


def with_constants(settings: Settings, **values: Any) -> Settings:
    """A copy of these settings in which these constants (`ClassVar`) have other values."""
    for name in values:
        assert hasattr(type(settings), name), f"{type(settings).__name__} has no constant {name}"
    settings.__dict__.update(values)
    return settings

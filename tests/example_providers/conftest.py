"""The contracts of examples/providers as they are loaded."""

import pytest
from example_providers.fix_examples import ENV, NAMES, lay

from idem.outbox.config import Configuration, load
from idem.outbox.domain.provider import Provider


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Configuration]:
    return {name: load(lay(name, tmp_path_factory.mktemp(name)), ENV) for name in NAMES}


@pytest.fixture(scope="session")
def providers(examples: dict[str, Configuration]) -> dict[str, Provider]:
    return {name: provider for example in examples.values() for name, provider in example.providers.items()}

"""The conformance suite for a provider contract: subclass it with a fixture `world`, and run it with pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idem.testing.providers.calls import Calls
from idem.testing.providers.freezing import Freezing
from idem.testing.providers.hearing import Hearing
from idem.testing.providers.listing import ListingRules
from idem.testing.providers.looking import Looking
from idem.testing.providers.losing import Losing
from idem.testing.providers.owning import Owning
from idem.testing.providers.reading import ReadingRules
from idem.testing.providers.refusing import Refusing
from idem.testing.providers.sanity import Sanity
from idem.testing.providers.sending import SendingRules
from idem.testing.providers.voiding import Voiding
from idem.testing.providers.world import World


class ProviderConformance(
    Sanity, Freezing, ReadingRules, Owning, SendingRules, Losing, Looking, Refusing, Voiding, ListingRules, Hearing
):
    """Each test states one rule, over a real socket, and without a database.

    A failure names the setting of the contract that promises too much. What this world cannot show, or this contract
    does not promise, is skipped with its reason: what was skipped was checked by nothing.
    """

    @pytest.fixture
    def world(self) -> Iterator[World]:
        """To be overridden: the provider's sandbox or double, and the switch for its faults, new for each test."""
        pytest.fail("give your subclass of ProviderConformance a fixture `world`", pytrace=False)
        yield

    @pytest.fixture
    def calls(self, world: World) -> Calls:
        """The calls of one test, to its world."""
        return Calls(world)

"""The conformance suite for a provider contract: subclass it with a fixture `world`, and run it with pytest."""

from collections.abc import Iterator

import pytest

from idem.testing.providers.calls import Calls
from idem.testing.providers.cancel_rules import CancelRules
from idem.testing.providers.contract_rules import ContractRules
from idem.testing.providers.freezing_rules import FreezingRules
from idem.testing.providers.listing_rules import ListingRules
from idem.testing.providers.lookup_rules import LookupRules
from idem.testing.providers.lost_answer_rules import LostAnswerRules
from idem.testing.providers.origin_rules import OriginRules
from idem.testing.providers.reading_rules import ReadingRules
from idem.testing.providers.refusal_rules import RefusalRules
from idem.testing.providers.replay_rules import ReplayRules
from idem.testing.providers.webhook_rules import WebhookRules
from idem.testing.providers.world import World


class ProviderConformance(
    ContractRules,
    FreezingRules,
    ReadingRules,
    OriginRules,
    ReplayRules,
    LostAnswerRules,
    LookupRules,
    RefusalRules,
    CancelRules,
    ListingRules,
    WebhookRules,
):
    """Each test states one rule, over a real socket, and without a database.

    A failure names the setting of the contract that promises too much. If this world cannot show something, or this
    contract does not promise it, the test is skipped with the reason: nothing has checked it.
    """

    @pytest.fixture
    def world(self) -> Iterator[World]:
        """Override it: the provider's sandbox or double, and the switch for its faults, new for each test."""
        pytest.fail("give your subclass of ProviderConformance a fixture `world`", pytrace=False)
        yield

    @pytest.fixture
    def calls(self, world: World) -> Calls:
        """The calls of one test in its world."""
        return Calls(world)

"""A suite to subclass that checks every promise of a provider contract against the provider.

    class TestLedger(ProviderConformance):
        @pytest.fixture
        def world(self) -> Iterator[World]: ...

It skips, with the reason, what it cannot check in a world. See docs/adopt/provider-conformance.md.
"""

from idem.outbox.domain.webhook import Signed
from idem.testing.providers.errors import Broken, NotSupported
from idem.testing.providers.line import Line
from idem.testing.providers.suite import ProviderConformance
from idem.testing.providers.world import Fault, World

__all__ = ["Broken", "Fault", "Line", "NotSupported", "ProviderConformance", "Signed", "World"]

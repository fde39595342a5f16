"""Is a provider contract true? A suite to subclass, which tries every promise of it on the provider's own socket.

    class TestLedger(ProviderConformance):
        @pytest.fixture
        def world(self) -> Iterator[World]: ...

What cannot be checked in a world is skipped with its reason, never passed. See docs/adopt/provider-conformance.md.
"""

from idem.outbox.domain.webhook import Signed
from idem.testing.providers.errors import Broken, NotSupported
from idem.testing.providers.line import Line
from idem.testing.providers.suite import ProviderConformance
from idem.testing.providers.world import Fault, World

__all__ = ["Broken", "Fault", "Line", "NotSupported", "ProviderConformance", "Signed", "World"]

"""The application of a bench: its worker and its clients import it (`app` in the bench's idem.toml)."""

import time
from typing import Any, Final

from idem import Answer, Idem, Operation
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest

TENANT: Final = "bench"


async def nothing(request: SendRequest, call: Sending) -> Succeeded:
    """A call that does nothing."""
    call.start()
    return Succeeded(request.key)


async def moment(request: SendRequest, call: Sending) -> Succeeded:
    """A call whose reference is the time of its start, in nanoseconds since 1970."""
    at = time.time_ns()
    call.start()
    return Succeeded(str(at))


idem = Idem()
OPERATIONS: Final[dict[str, Operation[Any]]] = {}
for _name, _send in (("nothing", nothing), ("warm", nothing), ("moment", moment)):
    idem.provider(_name, send=_send, deadline="20s", on_unsettleable="operator")
    OPERATIONS[f"bench.{_name}"] = idem.operation(
        f"bench.{_name}",
        provider=_name,
        answer=lambda outcome: Answer(201 if outcome.succeeded else 422, {"reference": outcome.reference}),
    )


def operation(name: str) -> Operation[Any]:
    """One of these, or one that the bench's idem.toml defines."""
    return OPERATIONS.get(name) or idem.declared(name)

"""An application whose one operation does nothing: what its worker costs is idem's own."""

from typing import Any

from idem import Answer, Idem
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest

OPERATION = "nothing.do"

idem = Idem()


def send(request: SendRequest, call: Sending) -> Succeeded:
    call.start()
    return Succeeded(request.key)


idem.provider("nothing", send=send, deadline="20s", flight_limit="60s", on_unsettleable="operator")
idem.operation(OPERATION, dict[str, Any], provider="nothing", answer=lambda o: Answer(201, {"id": o.reference}))

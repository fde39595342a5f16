"""What a provider's functions `send=` and `lookup=` take: `def send(request: SendRequest, call: Sending)`."""

from idem.outbox.domain.provider import Question
from idem.outbox.domain.sending import Sending, SendRequest

__all__ = ["Question", "SendRequest", "Sending"]

"""What a provider's functions `send=` and `lookup=` take: `def send(request: SendRequest, call: Sending)`."""

from idem.outbox.domain.provider import Question as Question
from idem.outbox.domain.sending import Sending as Sending
from idem.outbox.domain.sending import SendRequest as SendRequest

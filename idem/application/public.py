"""The names that `idem` itself exports, and where they are."""

from idem.application.app import Idem as Idem
from idem.application.call import AsyncCall as AsyncCall
from idem.application.call import Call as Call
from idem.application.flow import Step as Step
from idem.application.misuse import Misuse as Misuse
from idem.application.operation import Operation as Operation
from idem.application.replies import response as response
from idem.outbox.domain import contract as _contract
from idem.outbox.domain.decisions import Decision as Decision
from idem.outbox.domain.operation import Answer as Answer
from idem.outbox.domain.operation import Results as Results
from idem.outbox.handlers.handler import Settled as Settled
from idem.outbox.values.errors import ConfigError as ConfigError
from idem.outbox.values.errors import IdemError as IdemError
from idem.outbox.values.errors import KeyInvalid as KeyInvalid
from idem.outbox.values.errors import ParamsInvalid as ParamsInvalid
from idem.outbox.values.errors import RetryTransaction as RetryTransaction
from idem.outbox.values.errors import StoreUnavailable as StoreUnavailable

Request = _contract.ProviderRequest
# Python names the function where it is called with wrong arguments.
Request.__init__.__qualname__ = "Request.__init__"

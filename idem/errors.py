"""Every exception that idem raises on purpose. All of them are an `IdemError`."""

from idem.application.misuse import InTransaction as InTransaction
from idem.application.misuse import Misuse as Misuse
from idem.application.misuse import NotCommitted as NotCommitted
from idem.application.misuse import NoTransaction as NoTransaction
from idem.application.misuse import NotStored as NotStored
from idem.application.misuse import OutOfOrder as OutOfOrder
from idem.outbox.values.errors import AcceptPaused as AcceptPaused
from idem.outbox.values.errors import BodyInvalid as BodyInvalid
from idem.outbox.values.errors import ConfigError as ConfigError
from idem.outbox.values.errors import IdemError as IdemError
from idem.outbox.values.errors import KeyInvalid as KeyInvalid
from idem.outbox.values.errors import LeaseTooShort as LeaseTooShort
from idem.outbox.values.errors import OperatorRefused as OperatorRefused
from idem.outbox.values.errors import ParamsInvalid as ParamsInvalid
from idem.outbox.values.errors import RetryTransaction as RetryTransaction
from idem.outbox.values.errors import StoreUnavailable as StoreUnavailable
from idem.outbox.values.errors import Unrenderable as Unrenderable
from idem.outbox.values.errors import Unserved as Unserved
from idem.outbox.values.errors import WebhookRefused as WebhookRefused

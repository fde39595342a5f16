"""The bank: a payment provider that misbehaves on order, for tests and the demo.

Real HTTP over real sockets; every effect and every request stands in a log that is on the disk before anything is
answered, so that a test can compare what the provider did with what its client believes.
"""

from idem.testing.bank.bank import Bank
from idem.testing.bank.errors import BankError, LogCorrupt, LogInUse, SettingsError
from idem.testing.bank.faults import Fault, FaultName
from idem.testing.bank.log import Log, Request, read_log
from idem.testing.bank.process import run
from idem.testing.bank.records import Payment, Received, WebhookSent
from idem.testing.bank.script import Happening, Match, Script, Step, kill_pid_on_effect
from idem.testing.bank.settings import Account, BankSettings, Replay, WebhookOrder
from idem.testing.bank.shape import Look, Said, Shape
from idem.testing.bank.webhooks import signature

__all__ = [
    "Account",
    "Bank",
    "BankError",
    "BankSettings",
    "Fault",
    "FaultName",
    "Happening",
    "Log",
    "LogCorrupt",
    "LogInUse",
    "Look",
    "Match",
    "Payment",
    "Received",
    "Replay",
    "Request",
    "Said",
    "Script",
    "SettingsError",
    "Shape",
    "Step",
    "WebhookOrder",
    "WebhookSent",
    "kill_pid_on_effect",
    "read_log",
    "run",
    "signature",
]

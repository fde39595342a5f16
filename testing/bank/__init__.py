"""The bank: a fake payment provider that fails on request, for tests and the demo.

It speaks real HTTP over real sockets. It writes every request and every effect to a log on disk before it answers, so
that a test can compare what the provider did with what its client believes.
"""

from idem.testing.bank.bank import Bank
from idem.testing.bank.errors import LogCorrupt, LogInUse, SettingsError
from idem.testing.bank.faults import BankFault, FaultName
from idem.testing.bank.log import Log, Request, read_log
from idem.testing.bank.process import run
from idem.testing.bank.records import Payment, Received, WebhookSent
from idem.testing.bank.script import Happening, RequestMatch, ScriptStep, kill_pid_on_effect
from idem.testing.bank.settings import BankAccount, BankApi, BankSettings, CancelByKey, SecondRequest, WebhookOrder
from idem.testing.bank.shape import BankLookup, BankShape, StatusWords
from idem.testing.bank.signatures import signature
from idem.testing.bank.stripe.settings import StripeSettings

__all__ = [
    "Bank",
    "BankAccount",
    "BankApi",
    "BankFault",
    "BankLookup",
    "BankSettings",
    "BankShape",
    "CancelByKey",
    "FaultName",
    "Happening",
    "Log",
    "LogCorrupt",
    "LogInUse",
    "Payment",
    "Received",
    "Request",
    "RequestMatch",
    "ScriptStep",
    "SecondRequest",
    "SettingsError",
    "StatusWords",
    "StripeSettings",
    "WebhookOrder",
    "WebhookSent",
    "kill_pid_on_effect",
    "read_log",
    "run",
    "signature",
]

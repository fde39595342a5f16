"""What can go wrong with the bank itself, as against what it does wrong on order.

BankError
├── SettingsError   a setting, a fault's name or a script that makes no sense
├── LogInUse        another bank writes this log
└── LogCorrupt      the log has a line that no bank wrote
"""


class BankError(Exception):
    """The root of everything that the bank raises."""


class SettingsError(BankError, ValueError):
    """A setting, a fault's name, a match or a script is not understood; the message says which."""


class LogInUse(BankError):
    """The log file is locked by another running bank: two writers would each miss half of the truth."""


class LogCorrupt(BankError):
    """A line in the middle of the log cannot be read. (A torn last line is no error: it was never answered for.)"""

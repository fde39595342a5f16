"""Errors of the bank itself, not the faults that it plays.

BankError ├── SettingsError an invalid setting, fault name or script ├── LogInUse another bank writes to this log └──
LogCorrupt the log has an unreadable line
"""


class BankError(Exception):
    """The root of everything that the bank raises."""


class SettingsError(BankError, ValueError):
    """A setting, a fault's name, a match or a script is not understood; the message says which."""


class LogInUse(BankError):
    """The log file is locked by another running bank: two writers would each miss half of the truth."""


class LogCorrupt(BankError):
    """A line in the middle of the log cannot be read. (A torn last line is no error: it was never answered for.)"""

"""Errors of the bank itself, not the faults that it plays."""


class BankError(Exception):
    """The base of all errors of the bank."""


class SettingsError(BankError, ValueError):
    """A setting, a fault's name, a match or a script is invalid; the message says which."""


class LogInUse(BankError):
    """Another running bank has locked the log file: two writers would each miss half of the records."""


class LogCorrupt(BankError):
    """A line in the middle of the log cannot be read. (A torn last line is not an error: its request was never
    answered.)
    """

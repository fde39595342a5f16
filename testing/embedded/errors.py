"""The error of the embedded PostgreSQL."""


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL is not available.

    The message is for people: what happened, which setting, what to do now.
    """

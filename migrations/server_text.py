"""What PostgreSQL says about an error, for a person: without its line of the statement and its context."""


def said(error: BaseException | None) -> str:
    """The server's message and hint; of an error without them (a lost connection) the first two lines of its text."""
    diag = getattr(error, "diag", None)
    primary, hint = getattr(diag, "message_primary", None), getattr(diag, "message_hint", None)
    if not primary:
        return " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
    return f"{primary} ({hint})" if hint else str(primary)

"""Statements without the spaces that are for their readers."""

import re
from typing import LiteralString


def short(statement: LiteralString) -> LiteralString:
    """The statement with one space in the place of several, and no text of it changed: its literals have none.

    psycopg finds the parameters of a statement anew at each execution where it has more than 4,096 characters, which
    takes as long as half of a claim.
    """
    return re.sub(r"\s+", " ", statement).strip()

"""Keys that look like personal data: an idempotency key is stored and shown, so it should be random.

Conservative: what is random must never match. The value goes nowhere from here; only its kind does.
"""

import re
from typing import Final, Literal, TypeAlias

PersonalData: TypeAlias = Literal["email", "phone", "ssn"]

EMAIL: Final = re.compile(r"[a-z0-9][a-z0-9._%+-]*@(?:[a-z0-9-]+\.)+[a-z]{2,24}", re.IGNORECASE | re.ASCII)
PHONE: Final = re.compile(
    # With its country, or as it is written in North America. Digits alone could be a number of anything.
    r"\+[1-9](?:[ .()/-]{0,2}[0-9]){6,14}|\(?[2-9][0-9]{2}\)?[ .-][2-9][0-9]{2}[ .-][0-9]{4}",
    re.ASCII,
)
SSN: Final = re.compile(r"(?!000|666|9)[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4}", re.ASCII)

# Words that clients put around what they have: `user:ann@example.com`, `order-5_+4915112345678`.
APART: Final = re.compile(r"[:;,|/=_#&?]+")


def kind(key: str) -> PersonalData | None:
    """What a key looks like, as a whole or in one of its parts; None: nothing personal that could be told."""
    for part in (key, *APART.split(key)):
        if EMAIL.fullmatch(part):
            return "email"
        if PHONE.fullmatch(part):
            return "phone"
        if SSN.fullmatch(part):
            return "ssn"
    return None

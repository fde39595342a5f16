"""JSON as idem sends and stores it.

Not RFC 8785 (`canonical`): that has no form for a provider's 64-bit ids, which must keep their digits.
"""

import json
from typing import Any


def encoded(value: Any) -> bytes:
    """UTF-8, without spaces and without escapes of non-ASCII characters. Raises TypeError and ValueError."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")

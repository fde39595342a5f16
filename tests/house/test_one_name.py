"""No class name stands for two things."""

import re
from collections import defaultdict

from fix_source import texts

CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[\[(:]", re.MULTILINE)

WIRE = "outbox/api/schemas.py"
"""Its class names are those of the OpenAPI document, which clients know."""


def test_no_public_class_name_is_defined_twice() -> None:
    where = defaultdict(list)
    for path, text in texts():
        if str(path) == WIRE:
            continue
        for found in CLASS.finditer(text):
            where[found[1]].append(path)
    twice = {name: places for name, places in where.items() if len(places) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(places)}" for name, places in sorted(twice.items()))

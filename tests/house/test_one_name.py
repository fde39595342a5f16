"""No class name stands for two things."""

import re
from collections import defaultdict

from fix_source import texts

CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[\[(:]", re.MULTILINE)


def test_no_public_class_name_is_defined_twice() -> None:
    where = defaultdict(list)
    for path, text in texts():
        for found in CLASS.finditer(text):
            where[found[1]].append(path)
    twice = {name: places for name, places in where.items() if len(places) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(places)}" for name, places in sorted(twice.items()))

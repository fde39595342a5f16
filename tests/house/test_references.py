"""What comments and docstrings name is there: a module or name of idem, a file, a decision."""

import re

from fix_source import ROOT, texts

# `idem.outbox.status` is a column.
NAME = r"`idem\.((?:outbox\.\w+|cli|reconciler|sweeper|migrations|testing|application)(?:\.\w+)+)`"
NAMED = re.compile(NAME + r"|\b([\w/]+/\w+\.(?:py|sql|md|toml))\b")


def is_there(name: str) -> bool:
    place, parts = ROOT / ("idem" if name.startswith("application") else ""), name.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    module = place / "__init__.py"
    if parts and (place / f"{parts[0]}.py").exists():
        module = place / f"{parts.pop(0)}.py"
    return not parts or re.search(rf"(?m)^(?:(?:async )?def |class |    )?{parts[0]}\b", module.read_text()) is not None


def test_every_module_and_file_that_a_comment_names_is_there() -> None:
    places = (ROOT, ROOT / "idem", ROOT / "docs")
    lost = [
        f"{path}: {name or file}"
        for path, text in texts(suffixes=(".py", ".sql"))
        for name, file in NAMED.findall(text)
        if not (is_there(name) if name else any((place / file).exists() for place in places))
    ]
    assert lost == []


def test_every_decision_that_a_comment_names_is_there() -> None:
    records = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    named = {(path, number) for path, text in texts() for number in re.findall(r"docs/decisions/(\d{4})", text)}
    assert {each for each in named if each[1] not in records} == set()

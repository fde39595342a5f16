"""What the steps of an operation must say, whether they are written in Python or in idem.toml."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from idem.outbox.config.source import SettingPath
from idem.outbox.domain.plan import OnRefusal
from idem.outbox.values.errors import ConfigError
from idem.outbox.values.suggestions import nearest

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
MOST: Final = 20
"""Forward steps of one operation."""
PREFIX: Final = "step:"
ON_REFUSAL: Final = ("stop", "compensate", "operator")


@dataclass(frozen=True, slots=True)
class Outline:
    """What the rules are about, of one forward step."""

    name: str
    on_refusal: OnRefusal | None
    undo: str | None
    undo_on_refusal: OnRefusal | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """`at`: below the operation; an item of `steps` by its place."""

    at: SettingPath
    what: str
    do: str


def completing(completes_when: object) -> str | None:
    """The step whose success completes the key, of `completes_when = "step:NAME"`; None: the end of the flow does."""
    if isinstance(completes_when, str) and completes_when.startswith(PREFIX):
        return completes_when.removeprefix(PREFIX)
    return None


def check(where: str, steps: Sequence[Outline], completes_when: object) -> None:
    """Raises ConfigError for steps that make no flow. `where` names the operation."""
    found = [f"{_spelled(where, steps, each.at)}: {each.what}. {each.do}" for each in mistakes(steps, completes_when)]
    if found:
        raise ConfigError(*found)


def _spelled(where: str, steps: Sequence[Outline], at: SettingPath) -> str:
    """In Python a step has no place, but a name."""
    return ".".join([where, *(str(steps[part].name) if isinstance(part, int) else part for part in at)])


def mistakes(steps: Sequence[Outline], completes_when: object) -> Iterator[Mistake]:
    """What is wrong with the steps of an operation."""
    if not 1 <= len(steps) <= MOST:
        yield Mistake(("steps",), f"it has {len(steps)} steps", f"An operation has 1 to {MOST}")
        return
    yield from _names(steps)
    undone: list[str] = []
    for place, step in enumerate(steps):
        yield from _refusal(("steps", place), step, undone, first=place == 0)
        if step.undo is not None:
            undone.append(step.name)
    if completes_when is None:
        return
    chosen = completing(completes_when)
    if chosen is None:
        yield Mistake(
            ("completes_when",),
            "an operation that has steps is complete at the end of the last one, or when a step succeeds",
            'Leave it out, or say "step:NAME". A step may have a completes_when of its own call',
        )
    elif chosen not in [step.name for step in steps]:
        yield Mistake(
            ("completes_when",), f"there is no step {chosen!r}", nearest(chosen, [step.name for step in steps])
        )
    else:
        later = [step.name for step in steps].index(chosen) + 1
        for place, step in enumerate(steps[later:], later):
            if step.on_refusal == "compensate":
                yield Mistake(
                    ("steps", place, "on_refusal"),
                    f"compensate would undo what the client's answer says, which step {chosen} has stored by then "
                    "(completes_when)",
                    "Say operator",
                )


def _names(steps: Sequence[Outline]) -> Iterator[Mistake]:
    seen: list[str] = []
    for place, step in enumerate(steps):
        for at, name in ((("steps", place), step.name), (("steps", place, "undo"), step.undo)):
            if name is None and len(at) > 2:
                continue
            if not isinstance(name, str) or NAME.fullmatch(name) is None:
                do = "It begins with a-z, and has a-z, 0-9 and _, at most 40"
                yield Mistake((*at, "name"), f"{name!r} is no name of a step", do)
            elif name in seen:
                yield Mistake((*at, "name"), f"there are two steps {name}", "A step has a name of its own")
            else:
                seen.append(name)


def _refusal(at: SettingPath, step: Outline, undone: Sequence[str], *, first: bool) -> Iterator[Mistake]:
    if step.undo_on_refusal is not None:
        yield Mistake(
            (*at, "undo", "on_refusal"),
            "if a step that undoes another one is refused, an operator decides",
            "Leave it out",
        )
    at, said = (*at, "on_refusal"), step.on_refusal
    if said is None:
        if not first:
            yield Mistake(
                at,
                "nothing says what follows if this step is refused after an earlier one was done",
                "Say stop (the refusal is the answer, if there is nothing to undo), compensate (what is done is undone)"
                " or operator",
            )
    elif said not in ON_REFUSAL:
        yield Mistake(at, f"it is {said!r}", f"Say one of {', '.join(ON_REFUSAL)}")
    elif said == "stop" and undone:
        yield Mistake(at, f"stop would leave {undone[-1]} done, which can be undone", "Say compensate or operator")
    elif said == "compensate" and not undone:
        yield Mistake(
            at,
            "compensate needs an earlier step that can be undone, and none has an undo",
            "Give one, or say stop or operator",
        )

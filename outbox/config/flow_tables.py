"""Operations of several calls as idem.toml has them: settings that stand in the wrong table of one."""

from collections.abc import Mapping
from typing import Any, Final

from idem.outbox.config.call_settings import CallSettings
from idem.outbox.config.findings import Findings

OF_A_CALL: Final = frozenset(CallSettings.model_fields) - {"completes_when"}


def own(findings: Findings, operations: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of operations without what belongs into another table, which is a finding each."""
    return {name: _own(findings, name, table) for name, table in operations.items()}


def _own(findings: Findings, name: str, table: Any) -> Any:
    if not isinstance(table, Mapping) or "steps" not in table:
        return table
    loc, steps = ("operations", name), table["steps"]
    for setting in OF_A_CALL & table.keys():
        findings.error(
            (*loc, setting),
            f"the operation has steps, and each has a {setting} of its own",
            f'Write it into [[operations."{name}".steps]]',
        )
    kept = {setting: value for setting, value in table.items() if setting not in OF_A_CALL}
    if not isinstance(steps, list):
        return kept | {"steps": steps}
    return {**kept, "steps": [_step(findings, (*loc, "steps", place), step) for place, step in enumerate(steps)]}


def _step(findings: Findings, loc: tuple[str | int, ...], step: Any) -> Any:
    undo = step.get("undo") if isinstance(step, Mapping) else None
    if not isinstance(undo, Mapping):
        return step
    if "on_refusal" in undo:
        findings.error(
            (*loc, "undo", "on_refusal"),
            "if a step that undoes another one is refused, an operator decides",
            "Leave it out",
        )
    if "undo" in undo:
        findings.error((*loc, "undo", "undo"), "a step that undoes another one is not undone itself", "Leave it out")
    return {**step, "undo": {name: value for name, value in undo.items() if name not in ("on_refusal", "undo")}}

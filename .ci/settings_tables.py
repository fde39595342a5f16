"""The tables of docs/settings.md, from the schema of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

SETTINGS = """\
Settings stand in `idem.toml`; those that have a variable can be set there too, and the variable wins over the file. An
empty variable is one that is not set. Durations are written `250ms`, `5s`, `2m`, `1h`, `10d`, or as a number of
seconds. `idem config check` explains every mistake, `idem config show` prints what will be used.
"""
VARIABLES = """\
## Variables that are not settings

- `IDEM_CONFIG`: the configuration file; default `./idem.toml`. `--config` wins over it.
- `IDEM_DATABASE_URL`: the URL of the database. Only this variable and `url_from` may hold its password.
- `IDEM_OPERATOR`: the name that the evidence keeps for a decision; default user@host. `--by` wins over it.
- `IDEM_PG_BIN`: the folder with the programs of the embedded server; default those of the extra `embedded`.

Secrets are in variables of your own naming, or in files: `authorization = { env = "BANK_TOKEN" }`.
"""


def table() -> str:
    """Every setting: path, default, variable, and what it is."""
    from idem.outbox.config import source
    from idem.outbox.config.flow_settings import FlowSettings
    from idem.outbox.config.operation_settings import OperationSettings
    from idem.outbox.config.provider_settings import ProviderSettings
    from idem.outbox.config.settings import InstallationSettings

    variables = {place: name for name, place in source.variables().items()}
    text = SETTINGS
    listed: set[tuple[tuple[str, ...], str | None]] = set()
    for title, model, place, who in (
        ("Installation", InstallationSettings, (), "The operator who runs idem changes these."),
        (
            "Providers",
            ProviderSettings,
            ("providers", "<name>"),
            "The developer who connects a provider writes these, from its documentation.",
        ),
        (
            "Operations",
            OperationSettings,
            ("operations", '"<name>"'),
            "The developer of the application writes these.",
        ),
        (
            "Operations of several calls",
            FlowSettings,
            ("operations", '"<name>"'),
            "It has the settings of an operation, without those of a call, and these (see "
            "[operations of several calls](adopt/flows.md)).",
        ),
    ):
        text += f"\n## {title}\n\n{(model.__doc__ or '').strip()} {who}\n\n"
        text += "| setting | default | variable | what it is |\n| --- | --- | --- | --- |\n"
        # What repeats (pages, look-ups, limits) is one row, with every place where it may stand.
        rows: dict[tuple[str, str], list[tuple[tuple[str, ...], FieldInfo]]] = {}
        for path, field in fields(model, place):
            if (path, field.description) in listed:
                continue
            listed.add((path, field.description))
            rows.setdefault((path[-1], field.description or ""), []).append((path, field))
        for (_, description), same in rows.items():
            named = [f"`{variables[path]}`" for path, _ in same if path in variables]
            defaults = dict.fromkeys(default(field) for _, field in same)
            cells = [
                "<br>".join(f"`{'.'.join(path)}`" for path, _ in same),
                "<br>".join(defaults),
                "<br>".join(named),
                description,
            ]
            text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text + "\n" + VARIABLES


def fields(model: type[Any], place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every setting below this table; a table that may have any name is `<name>`, one of several is `[]`."""
    for name, field in model.described().items():
        below, step = below_of(field.annotation)
        if below is None or below.__name__ == "Secret":
            yield (*place, name), field
        else:
            yield from fields(below, (*place, name + step[0], *step[1:]))


def below_of(annotation: Any) -> tuple[type[BaseModel] | None, tuple[str, ...]]:
    """The table that a setting is, and what stands between its name and the names in it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ("",)
    for part in get_args(annotation):
        found, step = below_of(part)
        if found is not None and found.__name__ != "Secret":
            kind = getattr(annotation, "__origin__", None)
            return found, ("[]",) if kind is list else ("", "<name>") if kind is dict else step
    return None, ()


def default(field: FieldInfo) -> str:
    """The default as idem.toml would have it; nothing where there is none."""
    from idem.outbox.values import durations, json_pointer

    value = field.get_default(call_default_factory=True)
    if field.is_required() or value is PydanticUndefined:
        return "(required)"
    if value is None or value in ("", {}, [], ()):
        return ""
    seconds = (field.description or "").startswith(("Seconds", "Longest wait"))
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case tuple() if all(isinstance(step, str) for step in value):
            return f"`{json_pointer.render(value)}`"
        case tuple():
            return f"`[{', '.join(durations.text(step) for step in value)}]`"
        case float() if seconds and value:
            return f"`{durations.text(value)}`"
        case _:
            return f"`{value:g}`" if isinstance(value, float) else f"`{value}`".replace("\n", "\\n")

"""The data about operations that `idem.accept` in SQL reads: `idem db sync` writes it to `idem.operations`.

Only producers without Python need it. A worker knows its operations itself, and never reads them here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, text

from idem.outbox.accept.prepare import planned
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.domain.provider import Provider
from idem.outbox.values import json_pointer
from idem.outbox.values.canonical import MAX_BYTES


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of the sync for one operation; `changes` has one line for each difference."""

    name: str
    version: int
    what: Literal["new", "changed", "unchanged"]
    changes: tuple[str, ...] = ()


# Starters take turns by these rows, in the order of the names: a lock that only a role with rights to them can hold.
KNOWN = text("""
SELECT o.name, o.version, o.provider, o.account, o.settings FROM idem.operations o
 WHERE o.name = ANY (CAST(:names AS text[])) ORDER BY o.name FOR UPDATE
""")
WRITE = text("""
INSERT INTO idem.operations AS o (name, provider, account, settings)
VALUES (:name, :provider, :account, CAST(:settings AS jsonb))
    ON CONFLICT (name) DO UPDATE SET provider = excluded.provider, account = excluded.account,
       settings = excluded.settings, version = o.version + 1, updated_at = statement_timestamp()
     WHERE (o.provider, o.account, o.settings) IS DISTINCT FROM (excluded.provider, excluded.account, excluded.settings)
RETURNING o.version
""")
VERSION = text("SELECT o.version FROM idem.operations o WHERE o.name = :name")


def sync(
    connection: Connection,
    operations: Mapping[str, OperationSpec],
    providers: Mapping[str, Provider],
    *,
    max_bytes: int = MAX_BYTES,
) -> list[Synced]:
    """Write these operations in the caller's transaction; others are left alone. By name, in its order.

    Several starters may call this at once: each waits for the one before it, as long as the session's lock_timeout
    lets it. `max_bytes` is what the text of the params may have, at most 1 MiB. Raises ValueError for more.
    """
    if not 0 < max_bytes <= MAX_BYTES:
        raise ValueError(f"max_bytes must be 1 to {MAX_BYTES}")
    known = {row.name: row for row in connection.execute(KNOWN, {"names": sorted(operations)})}
    done: list[Synced] = []
    for name, operation in sorted(operations.items()):
        settings = settings_of(operation, providers, max_bytes=max_bytes)
        wanted = {"provider": operation.provider, "account": operation.account, **settings}
        before = known.get(name)
        changes: tuple[str, ...] = ()
        if before is not None:
            changes = tuple(
                _changes({"provider": before.provider, "account": before.account, **before.settings}, wanted)
            )
            if not changes:
                done.append(Synced(name, before.version, "unchanged"))
                continue
        version = connection.scalar(
            WRITE,
            {
                "name": name,
                "provider": operation.provider,
                "account": operation.account,
                "settings": json.dumps(settings),
            },
        )
        if version is None:
            # Another starter has written the same since we looked.
            done.append(Synced(name, connection.scalar(VERSION, {"name": name}) or 1, "unchanged"))
        else:
            done.append(Synced(name, version, "new" if version == 1 else "changed", changes))
    return done


def settings_of(operation: OperationSpec, providers: Mapping[str, Provider], *, max_bytes: int) -> dict[str, Any]:
    """What `idem.accept` reads of an operation, as JSON; durations in seconds. Of one without a call only its kind."""
    if operation.kind != "provider":
        return {"kind": operation.kind}
    provider = providers[operation.provider]
    return {
        "kind": operation.kind,
        "origin": provider.accounts[operation.account].origin,
        "key_ttl": operation.key_ttl,
        "patience": operation.patience,
        "refuse_after_expiry": operation.after_expiry == "refuse",
        "fingerprint_without": list(operation.fingerprint_without),
        "replay_window": int(provider.contract.replay_window),
        "marks_start": provider.contract.start_mark,
        "card_data": operation.card_data,
        "ordering_group": operation.ordering_group or operation.name,
        "ordering_key": None if operation.ordering_key is None else list(json_pointer.parse(operation.ordering_key)),
        "refusal_holds": operation.on_head_refused == "hold",
        "max_bytes": max_bytes,
        **({"plan": planned(operation, providers)} if operation.steps else {}),
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"{name}: {_shown(before, name)} -> {_shown(after, name)}"


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return json.dumps(settings[name], ensure_ascii=False) if name in settings else "none"

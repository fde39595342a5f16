"""Prints an intent: its state, what idem knows about it, and its timeline."""

from typing import Any, Final

import typer

from idem.cli.base.output import age, fields, labelled, say, state_text, table, text
from idem.cli.operator.preview import Prospect
from idem.outbox.values.plural import several

APPROVALS: Final = {
    "undecided": "the worker that renders it decides whether it needs one",
    "wanted": "waits for `idem intents approve` or `reject`",
    "wanted_of_another": "waits for `idem intents approve` by another person than the one who asked, or `reject`",
    "given": "given",
}
"""What a person reads of a row's approval."""


def show_intent(intent: dict[str, Any]) -> None:
    """Print an intent with its row, proofs, dead letters and timeline."""
    fields(
        [
            ("intent", intent["id"]),
            ("state", state_text(intent)),
            ("version", intent["version"]),
            ("operation", intent["operation"]),
            ("tenant", intent["tenant_id"]),
            ("key", intent["idempotency_key"]),
            ("key state", intent["key_state"] or "gone"),
            ("key expires", intent["expires_at"]),
            ("interim answer", intent["interim"]),
            ("stored answer", intent["response_status"]),
            ("object since then", intent["object_end"]),
            ("last error", intent["last_error_code"]),
            ("label", intent["label"]),
            ("asked by", intent["asked_by"]),
            ("params", intent.get("params")),
            ("provider", f"{intent['provider']}/{intent['account']}" if intent["provider"] else None),
            ("provider reference", intent["provider_reference"]),
            ("accepted", intent["created_at"]),
            ("settled", intent["settled_at"]),
        ]
    )
    if intent["steps"]:
        typer.echo()
        _show_steps(intent["steps"])
    if (row := intent["row"]) is not None:
        typer.echo()
        _show_row(row)
    for request in intent["requests"]:
        labelled("request  ", f"{request['method']} {text(request['path'])} (provider key {request['provider_key']})")
        if request["body"]:
            labelled("         ", text(request["body"]))
    for answer in intent["answers"]:
        times = f", {answer['times']} times" if answer["times"] > 1 else ""
        said = f": {text(answer['message'])}" if answer["message"] else ""
        attempt = f"attempt {answer['attempt']}{times}"
        how = f"HTTP {text(answer['http_status'])} ({answer['outcome']}, {attempt})"
        labelled("provider said  ", f"{how}{said}")
        if answer["body"]:
            labelled("         ", text(answer["body"]))
    for proof in intent["proofs"]:
        said = f"{proof['outcome']} of {text(proof['source'])}, reference {text(proof['reference'])}"
        labelled("unapplied proof  ", f"{said}, {age(proof['age'])} old")
    for letter in intent["dead_letters"]:
        end = "open"
        if letter["resolved_at"]:
            end = f"resolved as {letter['resolution']} by {text(letter['resolved_by'])}: {text(letter['note'])}"
        labelled("dead letter  ", f"{letter['id']} {letter['reason']}, {end}")
    typer.echo()
    columns = ["at", "step", "source", "kind", "outcome", "attempt", "http", "reference", "state", "row", "details"]
    # Source and transition matter most; the other columns need a wider terminal.
    drop = ("reference", "http", "attempt", "row", "details", "outcome", "source", "step", "state")
    shown = table(columns, [_line(entry) for entry in intent["timeline"]], empty="no evidence", drop=drop)
    if "details" not in shown and any(entry["details"] for entry in intent["timeline"]):
        say("see the details of each line on a wider terminal, or with --json")


def show_event(event: dict[str, Any]) -> None:
    """Print what idem stores of a provider's event, without its body."""
    size = event["body_bytes"]
    fields(
        [
            ("event", event["event_id"]),
            ("from", f"{event['provider']}/{event['account']}"),
            ("type", event["type"]),
            ("reference", event["reference"]),
            ("fate", event["fate"]),
            (
                "signed",
                "by its own account at another time than it arrived: not a proof by itself"
                if event["out_of_time"]
                else None,
            ),
            ("received", f"{age(event['age'])} ago"),
            ("failed tries", event["tries"] or None),
            ("body", "deleted after its retention" if size is None else several(size, "byte")),
        ]
    )


def _show_steps(steps: list[dict[str, Any]]) -> None:
    """The steps of a flow: what each has come to, which one is open, and what would follow it."""
    table(
        ["step", "", "outcome", "reference", "ended", "calls", "undoes"],
        [
            [step["name"], step["state"], _outcome(step), step["provider_reference"], step["ended_at"],
             f"{step['provider']}/{step['account']}" if step["provider"] else step["kind"], step["undoes"]]
            for step in steps
        ],
        empty="",
        drop=("calls", "undoes", "ended", "reference"),
    )  # fmt: skip
    for step in steps:
        if step["then"] is not None:
            said = ", ".join(f"if {how}: {FOLLOWS.get(then, then)}" for how, then in step["then"].items())
            labelled(f"then, after {text(step['name'])}  ", text(said))


def _outcome(step: dict[str, Any]) -> str | None:
    """How a step ended; of a refusal also why."""
    why = step["provider_status"] if step["outcome"] == "refused" else None
    return step["outcome"] if why is None else f"{step['outcome']} ({why})"


FOLLOWS = {"end": "the end", "partial": "an operator decides"}


def _show_row(row: dict[str, Any]) -> None:
    fields(
        [
            ("row", f"{row['status']} for {age(row['age'])}"),
            ("attempts", row["attempt"]),
            ("approval", APPROVALS.get(row["approval"])),
            ("due in", None if row["status"] in ("approval", "held") else age(max(0.0, row["due_in"]))),
            ("may start until", row["start_before"]),
            ("quiet time left", _quiet(row)),
            ("replay window left", age(row["replay_window_left"]) if row["replay_window_left"] is not None else None),
            ("doubted", "commits that the database lost may have sent it" if row["doubted_since"] else None),
            ("first send", "time not known: the database's clock was ahead" if row["sent_ahead"] else None),
            ("ordering key", None if row["ordering_key"] is None else _order(row)),
            ("held by", row["claimed_by"]),
            ("lease left", age(row["lease_left"]) if row["lease_left"] is not None else None),
            ("look-ups", f"{row['lookups']}, {row['absences']} of them found nothing" if row["lookups"] else None),
            ("sent to", row["origin"]),
        ]
    )


def _order(row: dict[str, Any]) -> str:
    behind = f", behind intent {row['blocked_by']}" if row["blocked_by"] else ""
    return f"{text(row['ordering_key'])} of {text(row['ordering_group'])}: {row['place']}{behind}"


def _quiet(row: dict[str, Any]) -> str | None:
    left = row["quiet_left"]
    if left is None or left > 0:
        return None if left is None else age(left)
    # Everything about a row at rest is proven, so a time that has passed says nothing.
    return None if row["status"] == "held" else "over"


def _line(entry: dict[str, Any]) -> list[object]:
    names = ("at", "step_name", "source", "kind", "outcome", "attempt", "http_status", "provider_reference")
    return [
        *(entry[name] for name in names),
        _moved(entry["from_state"], entry["to_state"]),
        _moved(entry["from_status"], entry["to_status"]),
        entry["details"] or None,
    ]


def _moved(before: str | None, after: str | None) -> str | None:
    return after if before == after else f"{before or ''} → {after or 'gone'}"


def show_prospects(found: list[Prospect]) -> None:
    """Print the possible actions, and why others are not possible."""
    if not found:
        return
    typer.echo()
    table(
        ["what you can do", "now", "effect, or why not"],
        [[each.command, "yes" if each.possible else "no", each.text] for each in found],
        empty="",
    )

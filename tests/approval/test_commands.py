"""What a person sees and decides: the list, the intent, the two commands, status and doctor."""

from pathlib import Path
from uuid import UUID

import pytest
from approval.waiting import BIG, SMALL
from fix_desk import Desk
from importing.lines import line, written

from idem.outbox.observe import metrics
from idem.outbox.operator import ages

APPROVES = '\n[operations."pay.keyed".approve]\nat = "/amount"\nabove = 1000\n'
LABEL = 'params = { type = "object" }\n'


@pytest.fixture
def careful(desk: Desk, configuration: Path) -> Desk:
    """A desk whose operation wants an approval above 1000, and has a label."""
    text = configuration.read_text().replace(LABEL, LABEL + 'label = "to customer {amount}"\n')
    configuration.write_text(text + APPROVES)
    desk.spine.know(approve=lambda p: p["amount"] > 1000, label=lambda p: f"to customer {p['amount']}")
    return desk


def asked(desk: Desk, key: str = "k", **options: object) -> UUID:
    return desk.spine.accepted(key, BIG, **options)


async def test_the_list_shows_what_waits(careful: Desk) -> None:
    waits = asked(careful, asked_by="grace@shop")
    careful.spine.accepted("small", SMALL)
    await careful.spine.advance(3700)
    found = (await careful.cli("intents", "list", "--status", "approval", "--json", code=0)).data["intents"]
    assert [each["id"] for each in found] == [str(waits)]
    assert (found[0]["label"], found[0]["asked_by"], found[0]["status"]) == (
        "to customer 5000",
        "grace@shop",
        "approval",
    )
    assert found[0]["status_age"] > 3600 and found[0]["age"] > 3600
    await careful.cli("intents", "list", "--status", "approval", code=0, out=str(waits))
    await careful.cli("intents", "list", "--status", "held", code=0, out="no intent matches")
    await careful.cli("intents", "list", "--status", "nothing", code=2, err="Use one of")


async def test_the_intent_shows_who_asked_and_what_it_waits_for(careful: Desk) -> None:
    intent = asked(careful, asked_by="grace@shop")
    await careful.cli(
        "intents", "show", intent, code=0, out=("asked by", "grace@shop", "waits for `idem intents approve`")
    )
    await careful.cli("intents", "approve", intent, "--reason", "known", "--by", "ann", "--yes", code=0)
    shown = await careful.cli("intents", "show", intent, "--json", code=0)
    told = shown.data["timeline"][-1]
    assert (told["kind"], told["details"]["by"], told["details"]["reason"]) == ("approved", "ann", "known")
    assert shown.data["row"]["approval"] == "given"


async def test_a_person_approves_what_was_shown(careful: Desk) -> None:
    intent = asked(careful, asked_by="grace@shop")
    await careful.cli("intents", "approve", intent, "--reason", "r", answer="n\n", code=1, err="nothing was changed")
    assert await careful.spine.status(intent) == "approval"
    await careful.cli(
        "intents", "approve", intent, "--reason", "r", answer="y\n", code=0,
        err=("pay.keyed of tenant t", "to customer 5000", "asked by grace@shop", "Approve it?"),
        out=f"intent {intent} is approved, and pending",
    )  # fmt: skip
    assert await careful.spine.works() == 1
    await careful.cli("intents", "approve", intent, "--reason", "r", "--yes", code=1, err="already completed")


async def test_a_person_rejects_what_was_shown(careful: Desk) -> None:
    intent = asked(careful)
    done = await careful.cli(
        "intents", "reject", intent, "--reason", "not this one", "--by", "ann", "--yes", "--json", code=0,
        err=("its key answers 403", "an unknown person"),
    )  # fmt: skip
    assert (done.data["action"], done.data["state"], done.data["status"]) == ("rejected", "completed", None)
    await careful.cli("intents", "show", intent, code=0, out="completed (rejected)")


async def test_what_does_not_wait_says_so(careful: Desk) -> None:
    intent = careful.spine.accepted("small", SMALL)
    for command in ("approve", "reject"):
        await careful.cli(
            "intents", command, intent, "--reason", "r", "--yes", code=1, err="does not wait for an approval"
        )
        await careful.cli("intents", command, UUID(int=5), "--reason", "r", "--yes", code=1, err="does not exist")
        await careful.cli("intents", command, intent, "--yes", code=2)


async def test_status_and_doctor_know_the_oldest(careful: Desk) -> None:
    asked(careful)
    found = await careful.cli("status", "--json", code=0)
    (row,) = found.data["outbox"]
    assert (row["status"], row["rows"], row["overdue"]) == ("approval", 1, None)
    await careful.cli("status", code=0, out="idem intents list --status approval")
    before = await careful.cli("doctor", "--json")
    assert "approval" not in str([each for each in before.data["findings"] if each["check"] == "queue"])
    await careful.spine.advance(5 * 3600)
    after = await careful.cli("doctor", "--json")
    late = [each for each in after.data["findings"] if each["check"] == "queue"]
    assert any("approval: the oldest of 1 row" in str(each) for each in late), late


async def test_the_metrics_know_the_oldest(careful: Desk) -> None:
    asked(careful)
    await careful.spine.advance(100)
    async with careful.spine.database.connection() as connection:
        await ages.report(connection, [("keyed", "keyed")])
    age = metrics.OLDEST.labels("approval", "keyed", "keyed")._value.get()
    assert age >= 100


async def test_an_import_refuses_lines_of_an_operation_that_wants_approvals(careful: Desk, tmp_path: Path) -> None:
    file = tmp_path / "outbox.jsonl"
    file.write_text(written(line("k1", params={"amount": 1}, answer={"status": 201, "body": "paid"})))
    await careful.cli("import", file, "--reason", "moved", "--yes", code=1, err="wants an approval")
    assert await careful.spine.all("SELECT FROM idem.intents") == []


async def test_an_operation_that_is_not_known_here_is_approved_and_not_rejected(
    careful: Desk, configuration: Path
) -> None:
    """Its time and its answer are not known: the time stays, and no other answer is stored for ever."""
    spine = careful.spine
    spine.know("pay.elsewhere", approve=lambda p: True, start_within=500.0)
    intent = asked(careful, operation="pay.elsewhere")
    await careful.cli("intents", "reject", intent, "--reason", "r", "--yes", code=2, err="not configured here")
    assert await spine.status(intent) == "approval"
    await careful.cli("intents", "approve", intent, "--reason", "r", "--yes", code=0)
    left = await spine.value("SELECT extract(epoch FROM start_before - now())::float8 FROM idem.outbox")
    assert left <= 500

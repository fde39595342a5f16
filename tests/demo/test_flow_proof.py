"""The proof of flows on records made by hand: silent about what is right, and loud about each thing that is wrong."""

from dataclasses import replace

import pytest
from demo import made_flow
from demo.made_flow import MadeFlow

DUPLICATE = ("P2", "a duplicate effect")
AFTER_LATER = ("P2", "an earlier step was sent after a later one")
AGAIN = ("P2", "a step was sent again after its end")
UNTOLD = ("P3", "an answer says something else of the steps than was done")
EVIDENCE = ("P4", "the end of a step differs from its evidence")


def test_flows_that_went_well_are_no_finding() -> None:
    for flow in made_flow.each():
        assert flow.findings() == []


def test_effects_are_counted_by_step() -> None:
    proof = made_flow.refused().prove()
    assert proof.flows.effects == {"reserve": 1, "charge": 1, "receipt": 0, "refund": 1, "release": 1}
    assert (proof.flows.refused, proof.flows.undone, proof.refused) == (1, 1, 1)
    assert proof.effects_wanted == proof.effects_made == 4
    proof = made_flow.partial().prove()
    assert (proof.flows.partial, proof.letters_expected) == (1, 1)
    assert proof.effects_wanted == proof.effects_made == 2
    assert made_flow.succeeded().prove().flows.succeeded == 1


# Each step's effect at most once, and never again after a later one.


def test_a_step_that_is_done_twice() -> None:
    flow = made_flow.succeeded()
    flow.send("charge")
    assert {DUPLICATE, AFTER_LATER, AGAIN} <= set(flow.findings())


def test_a_step_that_is_sent_again_without_harm() -> None:
    """Under its own key at a bank that keeps answers: that it did nothing was luck."""
    flow = made_flow.succeeded()
    flow.send("reserve", done=None)
    assert {AFTER_LATER, AGAIN} <= set(flow.findings())


def test_two_steps_under_one_key() -> None:
    flow = MadeFlow()
    flow.make("reserve")
    flow.begin("charge")
    flow.requests[-1] = replace(flow.requests[-1], provider_key="pk1")
    flow.send("charge", done=None, key="pk1")
    flow.end("charge", "succeeded", "pay_1")
    flow.make("receipt", ends=True)
    flow.answer("succeeded")
    found = flow.findings()
    assert ("P2", "two steps have one provider key") in found
    assert ("P1", "a step counts as done, but nothing was done") in found
    assert ("P1", "a flow is answered as done, but a step was not done") in found
    assert ("P2", "a step was sent before an earlier one was done") in found


def test_a_step_under_the_key_of_another() -> None:
    flow = made_flow.succeeded()
    request = next(place for place, each in enumerate(flow.bank) if getattr(each, "path", "").endswith("charge"))
    flow.bank[request] = replace(flow.bank[request], key="pk1")  # type: ignore[type-var]
    assert ("P2", "a step was sent under a key that is not its own") in flow.findings()


# Exactly once where the answer says so, and none where not.


@pytest.mark.parametrize("name", ["reserve", "charge", "receipt"])
def test_a_step_that_was_never_done(name: str) -> None:
    flow = made_flow.succeeded()
    flow.bank = [each for each in flow.bank if flow_step(flow, each) != name]
    found = flow.findings()
    assert ("P1", "a step counts as done, but nothing was done") in found
    assert ("P1", "a flow is answered as done, but a step was not done") in found
    assert UNTOLD in found


def test_a_step_that_is_done_by_another_payment() -> None:
    flow = made_flow.succeeded()
    flow.steps[1] = replace(flow.steps[1], reference="pay_1")
    assert flow.findings() == [("P1", "a step counts as done by another payment")]


def test_a_refused_step_that_was_done() -> None:
    flow = MadeFlow()
    flow.make("reserve")
    flow.begin("charge")
    flow.end("charge", "refused", flow.send("charge"))
    flow.make("release", ends=True)
    flow.answer("refused")
    found = flow.findings()
    assert ("P2", "a step counts as not done, but was done") in found
    assert ("P3", "a flow is answered as refused, but a step of it stands") in found


@pytest.mark.parametrize("name", ["refund", "release"])
def test_a_refused_flow_whose_steps_stand(name: str) -> None:
    """What undoes it was forgotten, in the plan and in the evidence."""
    flow = MadeFlow()
    undoing = [each for each in ("refund", "release") if each != name]
    for step in ("reserve", "charge", "receipt", *undoing):
        flow.make(step, done=step != "receipt", ends=step == undoing[-1])
    flow.answer("refused")
    assert flow.findings() == [("P3", "a flow is answered as refused, but a step of it stands")]


def test_undoing_of_what_was_not_done() -> None:
    flow = MadeFlow()
    flow.make("reserve")
    flow.make("charge", done=False)
    flow.make("refund")
    flow.make("release", ends=True)
    flow.answer("refused")
    assert ("P2", "a step was undone that was not done") in flow.findings()


def test_undoing_before_the_refusal() -> None:
    flow = MadeFlow()
    for name in ("reserve", "charge", "refund", "release"):
        flow.make(name, ends=name == "release")
    flow.answer("refused")
    found = flow.findings()
    assert found.count(("P2", "a step was undone before the bank had refused a later one")) == 2


def test_an_answer_that_is_not_true() -> None:
    flow = made_flow.refused()
    flow.becomes(answer_steps={**(flow.intent.answer_steps or {}), "refund": "refused"})
    assert flow.findings() == [UNTOLD]
    flow.becomes(answer_steps=None)
    assert flow.findings() == [UNTOLD]


def test_a_step_that_has_not_begun() -> None:
    flow = MadeFlow()
    flow.make("reserve")
    flow.make("charge", done=False)
    flow.make("release", ends=True)
    flow.answer("refused")
    assert flow.findings() == []
    flow.send("receipt", done=None)
    assert ("P2", "a step that has not begun was sent") in flow.findings()


# Evidence, and what is partly done.


def test_the_end_of_a_step_without_evidence() -> None:
    flow = made_flow.succeeded()
    flow.evidence = [row for row in flow.evidence if not (row.ends_step and row.step == 2)]
    assert EVIDENCE in flow.findings()


def test_the_evidence_of_an_end_that_is_forgotten() -> None:
    flow = made_flow.succeeded()
    del flow.steps[1]
    assert EVIDENCE in flow.findings()


def test_a_recovery_point_that_did_not_move() -> None:
    flow = made_flow.succeeded()
    flow.becomes(recovery_point=2)
    assert flow.findings() == [("P4", "the recovery point is not the last step that ended")]


def test_a_step_without_a_beginning() -> None:
    flow = made_flow.succeeded()
    flow.evidence = [row for row in flow.evidence if not (row.begins_step and row.step == 3)]
    assert ("P4", "a change of state without evidence") in flow.findings()


def test_a_flow_that_is_partly_done_and_nobody_knows() -> None:
    flow = made_flow.partial()
    flow.letters.clear()
    found = flow.findings()
    assert ("P5", "a flow is partly done without a dead letter") in found
    assert ("P5", "a dead letter is missing") in found


def test_a_compensation_that_rests_but_was_done() -> None:
    flow = made_flow.partial()
    flow.send("refund")
    assert ("P2", "a step waits as not done, but was done") in flow.findings()


def test_a_partly_done_flow_that_nobody_planned() -> None:
    flow = made_flow.partial()
    flow.partial = frozenset()
    assert flow.findings() == [("P5", "an unexpected dead letter")]


def flow_step(flow: MadeFlow, record: object) -> str:
    """The step of a record of the bank."""
    number = getattr(record, "request", getattr(record, "id", None))
    paths = {each.id: each.path for each in flow.bank if hasattr(each, "path")}  # type: ignore[union-attr]
    return paths[number].rpartition("step=")[2]

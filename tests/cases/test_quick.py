"""`make test` holds every promise, every hazard and every public case: what is long only adds to it."""

import ast
import re
import tomllib
from functools import cache

import layers
from cases.listed import cases

ROOT = layers.TESTS.parent
HAZARDS = tomllib.loads((ROOT / "tests" / "hazards" / "register.toml").read_text())
# docs/design.md, "Promises": the tests of the quick suite that hold each.
PROMISES = {
    "P1": (
        "kills/test_kill_points.py::test_a_killed_worker_leaves_one_effect",
        "sessions/test_durable_commits.py::test_reserve_and_submit_commit_durably",
        "hazards/test_settling.py::test_hazards_28_44_62_queued_rows_end_by_age_not_by_attempts",
    ),
    "P2": (
        "kills/test_kill_points.py::test_a_killed_worker_leaves_one_effect",
        "calls/test_proof.py::test_every_class_that_is_not_in_the_list_is_lost",
        "spine/test_path.py::test_absent_is_believed_only_after_the_quiet_time_then_redriven",
        "settling/test_order.py::test_where_a_replay_could_execute_there_is_none",
    ),
    "P3": (
        "accept/test_configuration_changed.py::test_each_door_gives_the_stored_answer",
        "accept/test_races.py::test_hazard_56_two_retries_of_a_completed_key_both_get_the_answer",
    ),
    "P4": (
        "schema/test_transitions.py::test_hazard_50_an_intent_moves_as_its_key_does",
        "races/test_races.py::test_a_worker_that_comes_too_late_brings_a_proof",
        "races/test_races.py::test_contradicting_late_proofs_open_a_dead_letter_and_change_nothing",
    ),
    "P5": (
        "doctor/test_queue.py::test_hazard_45_the_oldest_has_a_limit",
        "hazards/test_settling.py::test_hazard_45_the_age_of_everything_unsettled_is_a_metric",
    ),
}
LONG = re.compile(rf"pytest\.mark\.({'|'.join(layers.LONG)})\b")


@cache
def quick(path: str) -> frozenset[str]:
    """The test functions of a file that `make test` runs."""
    tree = ast.parse(layers.TESTS.joinpath(path).read_text())
    whole = " ".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign))
    marks = next(iter(re.findall(r"pytestmark = .*", whole)), "")
    found = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            own = " ".join(ast.unparse(each) for each in node.decorator_list if "parametrize" not in ast.unparse(each))
            said = f"{marks} {own}"
            long = LONG.search(said) or (layers.place(layers.TESTS / path) in layers.LONG)
            if not long or "pytest.mark.quick" in said:
                found.add(node.name)
    return frozenset(found)


def held(tests: list[str]) -> list[str]:
    """Those of these `file::test` that `make test` runs."""
    return [test for test in tests if (each := test.partition("::"))[2] in quick(each[0])]


def test_every_promise_has_a_quick_test() -> None:
    for promise, tests in PROMISES.items():
        assert held(list(tests)) == list(tests), promise


def test_every_hazard_has_a_quick_test() -> None:
    tests = {number: hazard["tests"] for number, hazard in HAZARDS.items()}
    assert {number: named for number, named in tests.items() if not held(named)} == {}


def test_every_public_case_has_a_quick_test() -> None:
    tests = {case.number: [*case.named, *case.holding] for case in cases()}
    assert {number: named for number, named in tests.items() if not held(named)} == {}

"""A suite is worth what it catches: for each rule a contract that breaks it, and the failure names the setting."""

from dataclasses import replace
from typing import Any

import pytest
from provider_conformance.fix_liars import (
    Acting,
    Blind,
    Confident,
    Forgetful,
    Fragile,
    Gullible,
    Hasty,
    Liar,
    Random,
    Throttled,
    Uncounted,
    contract,
    hearing,
    ignoring_its_query,
    like,
    listing_everything,
    opened,
)
from provider_conformance.fix_worlds import TOKEN, ledger

from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.schemes.standard import StandardWebhooks
from idem.testing.bank import CancelByKey
from idem.testing.providers import Broken, ProviderConformance
from idem.testing.providers.calls import Calls

SECOND = "test_a_second_send_under_one_key_does_what_replay_says"
REFUSED = "test_a_second_send_after_a_refusal_does_what_replay_says"
KEY = {"carrier": "header", "name": "Idempotency-Key", "replay": "stored", "retention": "24h"}
BY_KEY = {"path": "/payments?key={idem.key}", "object": "/data/0", "match": "/idempotency_key", "empty": "/data"}
BY_ID = {"path": "/payments/{idem.reference}"}
STATUSES = {"final": ["succeeded"], "answer": ["requires_action"], "pending": ["processing"], "refused": ["declined"]}
OBJECT = {"reference": "/id", "status": "/status"}
PAGE = {"style": "after_id", "parameter": "after", "more": "/has_more"}
LIST = {
    "path": "/payments?since={idem.since}&until={idem.until}&limit=2",
    "items": "/data",
    "created": "/created",
    "page": PAGE,
}
WEBHOOK = {
    "scheme": "standard",
    "secrets": [{"env": "LEDGER_SECRET"}],
    "object": "/data",
    "type": "/type",
    "key": "/data/idempotency_key",
    "reference": "/data/id",
}
WITHOUT_PENDING = {**OBJECT, "statuses": {**STATUSES, "pending": []}}
DECLINED_IS_FINAL = {**OBJECT, "statuses": {**STATUSES, "final": ["succeeded", "declined"], "refused": ["canceled"]}}


def looking(**ways: Any) -> Any:
    return ledger(lookup={"by_key": BY_KEY, "by_id": BY_ID, "horizon": "10s", **ways})


def tagging_all() -> Any:
    class Everybodys(DeploymentTag):
        def ours(self, shown: Any, deployment: str) -> bool:
            return True

    honest = ledger()
    assert honest.tag is not None
    return replace(honest, tag=Everybodys(at=honest.tag.at, key_at=honest.tag.key_at))


CARRYING = ProviderRequest("POST", "/payments", {"amount": 500, "currency": "eur", "token": TOKEN})
CANCEL = {"path": "/payments/cancel", "body": {"key": "{idem.key}"}}
OTHERS_CANCEL = {"path": "/payments/cancel", "body": {"key": "another {idem.key}"}}
FAILED_401 = {"says": "refused", "status": 401, "when": {"/error/code": {"exists": True}}}
FAILED_500 = {"says": "not_executed:request", "status": 500}

LIARS = [
    Liar(SECOND, "stored, but keys are ignored", "key.replay", opened(ledger(), bank={"replay": "none"})),
    Liar(REFUSED, "stored, but a refusal is tried anew", "key.replay",
         opened(ledger(), bank={"replay": "success_only"})),
    Liar("test_another_request_under_the_key_has_no_effect", "stored, but keys are ignored", "key.replay",
         opened(ledger(), bank={"replay": "none"})),
    Liar("test_the_key_is_remembered_to_the_end_of_the_window", "24h, but 12h", "key.retention",
         opened(ledger(), bank={"retention": 43200.0})),
    Liar("test_a_send_while_the_first_is_worked_on_has_no_second_effect", "stored, but keys are ignored", "key.replay",
         opened(ledger(), bank={"replay": "none"}), ("again",)),
    Liar("test_a_lost_answer_is_settled_by_a_replay", "stored, but keys are ignored", "key.replay",
         opened(ledger(), bank={"replay": "none"}), ("act_then_drop",)),
    Liar("test_a_lost_answer_is_settled_by_each_lookup", "a horizon of nothing", "lookup.horizon",
         opened(looking(horizon="0s")), ("act_then_drop",)),
    Liar("test_a_lost_answer_is_ambiguous", "a 500 is no effect", "outcome",
         opened(ledger(outcome=[FAILED_500])), ("500_after_acting",)),
    Liar("test_what_never_acted_is_no_proof_and_not_found", "a drop that acts", "the world",
         opened(ledger(), kind=Acting), ("drop_before_acting",)),
    Liar("test_a_healthy_call_has_one_effect_and_a_reference", "effects that nobody counts", "the world",
         opened(ledger(), kind=Uncounted)),
    Liar("test_what_acts_late_is_found_in_the_end", "half a second of flight", "flight_limit",
         opened(contract(flight_limit=0.5))),
    Liar("test_a_foreign_key_is_never_found", "a query that is ignored", "lookup", opened(ignoring_its_query())),
    Liar("test_a_key_that_was_never_sent_is_absent", "nothing says nothing", "lookup",
         opened(looking(by_key={name: each for name, each in BY_KEY.items() if name != "empty"}))),
    Liar("test_by_id_shows_no_other_object", "everything is what was asked for", "lookup.by_id",
         opened(like(Confident))),
    Liar("test_by_id_shows_the_same_object", "it asks elsewhere", "lookup.by_id",
         opened(looking(by_id={"path": "/payment/{idem.reference}"}))),
    Liar("test_a_lookup_never_makes_a_success_of_a_refusal", "declined is final", "outcome",
         opened(ledger(object=DECLINED_IS_FINAL, outcome=[{"says": "refused", "status": 402,
                                                           "when": {"/error/code": "card_declined"}}]))),
    Liar("test_a_lookup_shows_what_is_pending", "nobody knows what processing is", "outcome",
         opened(ledger(object=WITHOUT_PENDING))),
    Liar("test_a_question_that_fails_is_no_absence", "503 is absent", "lookup",
         opened(looking(by_key={**BY_KEY, "absent": [404, 503]})), ("503",)),
    Liar("test_wrong_credentials_are_a_mistake_of_the_configuration", "401 is refused", "outcome",
         opened(ledger(outcome=[FAILED_401]))),
    Liar("test_wrong_credentials_find_nothing_and_prove_nothing", "401 is absent", "lookup",
         opened(looking(by_key={**BY_KEY, "absent": [401, 404]}))),
    Liar("test_throttling_is_what_the_contract_says", "a 429 after the effect", "throttles_before_execution",
         opened(ledger(throttles_before_execution=True), kind=Throttled)),
    Liar("test_a_decline_is_a_refusal_without_an_effect", "declined is final", "outcome",
         opened(ledger(object=DECLINED_IS_FINAL, outcome=[{"says": "final", "status": 402,
                                                           "when": {"/status": "declined"}}]))),
    Liar("test_an_outcome_that_the_world_can_show", "nobody knows what processing is", "outcome",
         opened(ledger(object=WITHOUT_PENDING)), ("pending",)),
    Liar("test_freezing_again_gives_the_same_bytes", "the time is in it", "freeze", opened(like(Hasty))),
    Liar("test_nothing_but_the_key_differs_between_two_calls", "chance is in it", "freeze", opened(like(Random))),
    Liar("test_the_key_travels_where_the_contract_says", "it is left out", "key.name", opened(like(Forgetful))),
    Liar("test_no_credential_is_frozen", "the token is in the body", "accounts", opened(ledger(), request=CARRYING)),
    Liar("test_the_tag_is_in_the_request", "it is left out", "deployment_tag.at", opened(replace(ledger(), tag=None))),
    Liar("test_reading_never_raises", "errors always have a message", "classify", opened(like(Fragile))),
    Liar("test_a_cut_answer_proves_nothing", "201 is enough", "classify", opened(like(Gullible))),
    Liar("test_a_cut_lookup_proves_nothing", "what does not show it has nothing", "lookup", opened(like(Gullible))),
    Liar("test_a_proxys_page_proves_nothing", "403 is refused", "outcome", opened(like(Gullible))),
    Liar("test_a_page_on_the_line_proves_nothing", "403 is refused", "outcome", opened(like(Gullible)),
         ("proxy_page",)),
    Liar("test_what_is_absent_is_not_absent_in_the_answer_to_a_write", "200 is enough", "outcome",
         opened(like(Gullible))),
    Liar("test_every_answer_to_a_call_carries_the_header", "the provider sends none", "answers_carry",
         opened(ledger(answers_carry="Bank-Request"))),
    Liar("test_every_answer_to_a_question_carries_the_header", "the provider sends none", "answers_carry",
         opened(ledger(answers_carry="Bank-Request"))),
    Liar("test_an_answer_without_the_header_proves_nothing", "every proxy sets it", "answers_carry",
         opened(ledger(answers_carry="Content-Type")), ("proxy_page",)),
    Liar("test_a_cancel_by_key_really_voids", "it cancels another key", "cancel_by_key",
         opened(ledger(cancel_by_key=OTHERS_CANCEL))),
    Liar("test_a_cancel_of_nothing_is_done_too", "there is no such key", "cancel_by_key",
         opened(ledger(cancel_by_key={**CANCEL, "path": "/payments/void"}))),
    Liar("test_a_cancel_stops_what_arrives_after_the_cancel", "blocks nothing", "cancel_by_key.blocks_late_requests",
         opened(ledger(), bank={"cancel": CancelByKey()})),
    Liar("test_a_cancel_stops_what_is_being_worked_on", "blocks nothing", "cancel_by_key.blocks_late_requests",
         opened(ledger(), bank={"cancel": CancelByKey()})),
    Liar("test_the_list_shows_what_was_made", "the reference stands elsewhere", "list",
         opened(ledger(list={**LIST, "reference": "/idempotency_key"}))),
    Liar("test_the_list_shows_whose_an_object_is", "the id is our key", "list.key",
         opened(ledger(list={**LIST, "key": "/id"}))),
    Liar("test_the_list_shows_others_as_others", "all objects have our tag", "deployment_tag", opened(tagging_all())),
    Liar("test_the_list_goes_on_to_its_end", "one page is all", "list.page",
         opened(ledger(list={name: each for name, each in LIST.items() if name != "page"}))),
    Liar("test_the_list_keeps_to_its_time", "it knows no time", "list.path", opened(listing_everything())),
    Liar("test_a_delivery_of_the_provider_is_verified", "another secret", "webhook",
         opened(hearing(StandardWebhooks(), (b"x" * 32,)))),
    Liar("test_a_changed_delivery_is_not_verified", "everything is verified", "webhook", opened(hearing(Blind()))),
    Liar("test_a_delivery_under_another_secret_is_not_verified", "everything is verified", "webhook",
         opened(hearing(Blind()))),
    Liar("test_an_event_names_the_call_and_says_what_its_answer_said", "the id is our key", "webhook.key",
         opened(ledger(webhook={**WEBHOOK, "key": "/data/id"}))),
    Liar("test_an_event_settles_a_lost_answer", "nobody reads its object", "outcome",
         opened(ledger(webhook={**WEBHOOK, "object": "/data/status"}))),
    Liar("test_an_event_about_a_refusal_is_no_success", "declined is final", "outcome",
         opened(ledger(object=DECLINED_IS_FINAL))),
    Liar("test_the_contract_is_one_that_start_up_takes", "it gives up before it may know", "contract",
         opened(contract(schedule=(1.0, 5.0)))),
    Liar("test_a_healthy_call_fits_into_the_deadline", "a deadline that is over at once", "deadline|outcome|the world",
         opened(contract(deadline=0.002))),
    Liar("test_keys_are_remembered_for_longer_than_a_call_may_fly", "no margin", "key.margin",
         opened(contract(key=replace(ledger().contract.key, margin=1.0)))),
]  # fmt: skip

WITHOUT_LIAR = {
    "test_a_cached_failure_is_not_replayed_for_ever": "the bank cannot answer a replay differently",
    "test_a_lost_answer_can_be_settled_at_all": "it fails never, and is skipped where nothing settles",
    "test_a_stalled_call_ends_at_its_deadline": "the lane ends every call over HTTP",
    "test_lookups_have_no_effect": "no contract can ask by anything but GET",
    "test_further_statuses_are_sorted": "see test_further_statuses",
    "test_a_cancel_leaves_other_calls_alone": "the bank voids what it is told to",
    "test_a_bare_body_is_not_verified": "a scheme without headers signs in the body, and the rule says so",
    "test_what_is_final_stays_so": "the bank takes nothing back",
}


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: f"{liar.rule.removeprefix('test_')}: {liar.why}")
def test_the_suite_catches(liar: Liar) -> None:
    suite: Any = ProviderConformance()
    with liar.opened() as world, pytest.raises(Broken, match=rf"^({liar.says})\b"):
        getattr(suite, liar.rule)(Calls(world), *liar.more)


def test_further_statuses() -> None:
    with opened(ledger(object=WITHOUT_PENDING))() as world:
        world.further = ("pending", "requires_action")
        with pytest.raises(Broken, match=r"^object.statuses: .*pending"):
            ProviderConformance().test_further_statuses_are_sorted(Calls(world))


def test_every_rule_has_its_liar() -> None:
    rules = {name for name in dir(ProviderConformance) if name.startswith("test_")}
    caught = {liar.rule for liar in LIARS}
    assert caught | set(WITHOUT_LIAR) == rules and not caught & set(WITHOUT_LIAR)

"""Which test holds which hazard, by the numbers of the project's list; `docs/hazards.md` is made of this."""

from __future__ import annotations

SETTLING = "tests/hazards/test_settling.py"
RACES = "tests/races/test_races.py"
CHECK = "tests/calls/test_last_check.py"
EXPIRED = "tests/sweeper/test_expired.py"
WORKER = "tests/daemons/test_worker.py"
RECOVERY = "tests/recovery/test_database_changed.py"
LAST_MOMENT = "tests/recovery/test_last_moment.py"
OPERATOR = "tests/cli/test_operator.py"
PATH = "tests/spine/test_path.py"
CONTENT = "tests/accept/test_content.py"
TRANSITIONS = "tests/schema/test_transitions.py"
ASKING = "tests/api/test_asking.py"
API_CONTENT = "tests/api/test_content.py"
WAITING = "tests/api/test_waiting.py"
APPLYING = "tests/webhooks/test_applying.py"
RESERVE = "tests/schema/test_reserve.py"
PRODUCERS = "tests/producers/test_accept.py"
INLINE = "tests/inline/test_runs.py"
INLINE_KILLS = "tests/inline/test_kills.py"
AWAITING = "tests/interim/test_awaiting.py"
FLOW = "tests/interim/test_flow.py"

HAZARDS: dict[int, tuple[str, tuple[tuple[str, str], ...]]] = {
    1: (
        "a worker freezes between claim and send, and calls after the verdict",
        (
            (CHECK, "test_a_process_stopped_for_longer_than_its_lease_sends_nothing_when_it_wakes"),
            (EXPIRED, "test_the_quiet_time_takes_in_a_pause_unless_the_holder_is_known_to_be_done"),
            (EXPIRED, "test_without_its_start_mark_a_swept_row_goes_back_to_the_queue"),
        ),
    ),
    2: (
        "a request may still take effect after the client's deadline",
        ((PATH, "test_absent_is_believed_only_after_the_quiet_time_then_redriven"),),
    ),
    3: (
        "nothing reads a proof that arrives in another state than `unknown`",
        (
            (SETTLING, "test_hazard_3_a_proof_about_an_earlier_attempt_stops_the_queued_one"),
            (RACES, "test_a_worker_that_comes_too_late_brings_a_proof"),
            (RACES, "test_outcome_and_stored_proof_that_disagree_settle_nothing"),
            (RACES, "test_a_verdict_never_beats_a_proof_that_is_stored"),
        ),
    ),
    4: (
        "our own mistake completes a key forever",
        (
            (SETTLING, "test_hazard_4_a_refusal_of_our_credentials_settles_nothing"),
            (SETTLING, "test_hazard_4_a_401_on_a_replay_proves_nothing_about_the_first_attempt"),
            (SETTLING, "test_hazard_4_a_refusal_by_its_status_alone_settles_no_replay"),
            ("tests/providers/test_meanings.py", "test_hazard_4_a_code_counts_in_the_providers_own_error_shape_alone"),
            ("tests/stripe/test_settling.py", "test_hazard_4_a_decline_is_an_answer_and_names_its_payment"),
            ("tests/stripe/test_settling.py", "test_hazard_4_a_decline_whose_answer_was_lost"),
        ),
    ),
    5: (
        "a fail-over, a restore or a clone loses a claim",
        (
            (RECOVERY, "test_hazard_5_after_a_restore_only_harmless_rows_stay_queued"),
            (LAST_MOMENT, "test_hazard_5_a_queued_row_is_sent_within_the_providers_memory_only"),
            (LAST_MOMENT, "test_a_second_send_counts_the_window_from_the_first_that_may_have_been"),
            (RECOVERY, "test_a_clone_is_not_worked_on_by_another_environment"),
            (RECOVERY, "test_hazard_5_commits_of_daemons_are_durable_whatever_the_role_says"),
        ),
    ),
    6: (
        "a held row is deleted, or claimed",
        (
            (TRANSITIONS, "test_hazard_6_a_row_leaves_only_when_its_step_is_done"),
            (SETTLING, "test_hazard_10_a_redrive_keeps_the_key_and_the_bytes"),
        ),
    ),
    7: (
        "the retention guard counts from the wrong time, or by the wrong clock",
        (
            (SETTLING, "test_hazard_7_no_replay_outside_the_retention_guard"),
            (SETTLING, "test_hazard_7_a_floor_lowered_in_the_configuration_holds_at_once"),
            (SETTLING, "test_hazard_7_days_of_not_reaching_it_do_not_use_up_the_window"),
            ("tests/settling/test_pins.py", "test_the_retention_guard_holds_after_a_redrive"),
            ("tests/settling/test_order.py", "test_a_replay_that_comes_second_obeys_the_retention_guard"),
            ("tests/stripe/test_settling.py", "test_hazard_7_after_the_window_nothing_is_sent_and_the_events_settle"),
            ("tests/stripe/test_settling.py", "test_hazard_7_what_was_never_there_is_not_sent_anew_by_a_replay"),
            ("tests/matrix/test_contracts.py", "test_no_replay_comes_near_the_end_of_the_retention"),
            ("tests/settling/test_one_memory.py", "test_sql_and_python_say_the_same_of_every_row"),
            ("tests/settling/test_memory_ends.py", "test_a_replay_leaves_inside_the_memory_or_not_at_all"),
            (
                "tests/settling/test_stopped_process.py",
                "test_what_was_allowed_is_not_sent_when_the_process_goes_on_after_the_memory",
            ),
            (
                "tests/settling/test_memory_ends.py",
                "test_the_last_look_comes_before_the_shorter_of_both_memories_ends",
            ),
            (
                "tests/recovery/test_retries_on_a_word.py",
                "test_a_retry_inside_the_memory_goes_on_counting_from_the_first_send",
            ),
        ),
    ),
    8: (
        "idem asks or sends under another account or origin",
        (
            (SETTLING, "test_hazard_8_credentials_of_another_account_prove_no_absence"),
            (SETTLING, "test_hazard_8_a_row_of_another_origin_is_left_alone"),
            ("tests/settling/test_pins.py", "test_a_redrive_goes_to_the_account_it_was_accepted_for_or_nowhere"),
            (
                "tests/settling/test_cancel.py",
                "test_the_credentials_of_another_account_cancel_nothing_and_are_not_believed",
            ),
            ("tests/settling/test_account_check.py", "test_under_another_accounts_credentials_nothing_is_called"),
            ("tests/settling/test_account_check.py", "test_the_first_start_stores_and_the_next_finds_the_same"),
            ("tests/settling/test_account_check.py", "test_an_outage_at_the_start_holds_up_nobody"),
            ("tests/settling/test_account_check.py", "test_a_call_that_has_its_claim_already_is_given_back"),
        ),
    ),
    9: (
        "the reconciler's replay sends, but holds no claim",
        (
            (RACES, "test_two_reconcilers_take_a_row_once"),
            ("tests/settling/test_order.py", "test_where_a_replay_could_execute_there_is_none"),
            ("tests/matrix/test_sabotage.py", "test_a_reconciler_that_replays_where_a_replay_could_execute"),
        ),
    ),
    10: (
        "the provider key is burned",
        (
            (SETTLING, "test_hazard_10_a_redrive_keeps_the_key_and_the_bytes"),
            (SETTLING, "test_hazard_10_a_burned_key_is_renewed_only_when_nothing_can_act_any_more"),
            ("tests/settling/test_cached.py", "test_the_redrive_takes_a_new_key_and_the_old_one_is_still_known"),
            ("tests/settling/test_cached.py", "test_nothing_is_rendered_while_something_sent_may_still_act"),
            ("tests/settling/test_cancel.py", "test_a_reconciler_that_dies_with_its_cancel_leaves_the_key_burned"),
            ("tests/settling/test_echo.py", "test_the_event_of_the_cancelled_object_refuses_nothing"),
            ("tests/stripe/test_settling.py", "test_hazard_10_a_cached_500_ends_the_replays_and_its_events_settle"),
            ("tests/stripe/test_settling.py", "test_hazard_10_a_cached_500_without_an_effect_is_never_sent_again"),
            ("tests/matrix/test_contracts.py", "test_what_is_cancelled_by_key_is_made_anew_once"),
        ),
    ),
    11: (
        "an inline operation has no token",
        (
            (INLINE, "test_hazard_11_a_run_is_a_row_that_is_born_claimed_under_a_token_and_a_lease"),
            (INLINE, "test_hazard_11_without_a_provider_an_unknown_run_is_a_dead_letter_at_once"),
            (INLINE_KILLS, "test_hazard_11_a_caller_that_wakes_after_the_other_has_completed_changes_no_answer"),
            (INLINE_KILLS, "test_hazard_11_a_caller_that_wakes_while_the_other_holds_the_key_takes_nothing_from_it"),
        ),
    ),
    14: (
        "no state says that the provider is still working",
        (
            (PATH, "test_pending_is_awaited_and_never_sent_again"),
            (SETTLING, "test_hazard_14_pending_for_too_long_tells_an_operator_and_polling_goes_on"),
            (FLOW, "test_hazard_14_the_customer_is_sent_on_while_the_end_is_awaited"),
            (AWAITING, "test_hazard_14_an_interim_answer_does_not_move_the_limit"),
            ("tests/settling/test_pending.py", "test_a_payout_that_takes_five_days"),
        ),
    ),
    15: (
        "a call is lost silently",
        ((SETTLING, "test_hazard_15_a_verdict_without_a_redrive_tells_somebody"),),
    ),
    16: (
        "a polling client makes waiting rows unknown",
        ((SETTLING, "test_hazard_16_a_polling_client_does_not_make_a_waiting_row_unknown"),),
    ),
    17: (
        "two effects, and nothing reports them",
        (
            (SETTLING, "test_hazard_17_two_payments_under_one_reference_are_seen"),
            (RACES, "test_contradicting_late_proofs_open_a_dead_letter_and_change_nothing"),
            ("tests/webhooks/test_later.py", "test_hazard_17_a_refund_is_told_and_changes_nothing"),
            ("tests/stripe/test_localstripe.py", "test_a_bad_line_and_a_killed_worker_make_no_second_payment"),
            ("tests/stripe/test_settling.py", "test_one_call_that_made_several_kinds_is_one_effect"),
            ("tests/ledger/test_classes.py", "test_hazard_17_a_payment_that_a_person_said_had_not_happened"),
            ("tests/ledger/test_classes.py", "test_hazard_17_a_payment_of_an_intent_that_was_cancelled"),
        ),
    ),
    18: (
        "a webhook is not ours, or not final",
        (
            (APPLYING, "test_hazard_18_another_accounts_secret_touches_nothing"),
            ("tests/schemes/test_every_scheme.py", "test_a_genuine_delivery_is_taken_under_any_of_several_secrets"),
            ("tests/stripe/test_events.py", "test_hazard_18_the_charge_beside_a_payment_settles_nothing"),
        ),
    ),
    19: (
        "expiry counts from the wrong moment",
        (
            (SETTLING, "test_hazard_19_settling_extends_the_life_of_the_answer"),
            (SETTLING, "test_hazard_19_a_late_proof_after_the_key_was_used_anew"),
            ("tests/accept/test_decisions.py", "test_hazard_19_the_reaper_between_insert_and_select"),
        ),
    ),
    20: (
        "one bad row stops a whole batch",
        ((RACES, "test_hazard_20_one_bad_row_does_not_stop_a_batch"),),
    ),
    21: (
        "the answer to COMMIT is lost",
        (
            (WORKER, "test_hazards_21_69_a_claim_whose_answer_is_lost_is_given_back"),
            (WORKER, "test_a_settle_whose_answer_is_lost_is_written_once"),
            ("tests/inline/test_outage.py", "test_hazard_21_the_lost_answer_to_a_beginning_is_found_by_its_token"),
            ("tests/inline/test_outage.py", "test_hazard_21_the_lost_answer_to_complete_is_already_written"),
        ),
    ),
    22: (
        "lock order, and a caller's long transaction",
        (
            ("tests/accept/test_decisions.py", "test_hazard_22_accept_writes_no_row_with_a_claim_or_an_end"),
            ("tests/accept/test_decisions.py", "test_hazard_22_accept_waits_for_no_lock_of_a_daemon"),
            ("tests/adopt/test_one_key.py", "test_two_keys_in_opposite_order_meet_without_a_deadlock"),
            ("tests/adopt/test_one_key.py", "test_a_caller_that_keeps_its_transaction_open_holds_up_nobody"),
        ),
    ),
    23: (
        "a second accept waits for the first caller's transaction",
        (
            ("tests/accept/test_races.py", "test_hazard_23_the_second_hears_in_progress_before_the_first_commits"),
            (RESERVE, "test_hazard_23_56_another_request_never_waits"),
            (PRODUCERS, "test_hazard_23_two_sessions_with_one_key_one_wins_and_nobody_waits"),
            ("tests/adopt/test_one_key.py", "test_fifty_requests_with_one_key_over_two_processes"),
        ),
    ),
    24: (
        "`now()` is the start of the transaction",
        (
            (SETTLING, "test_hazard_24_a_lease_begins_with_its_statement_not_with_its_transaction"),
            (SETTLING, "test_hazard_24_no_statement_of_a_daemon_uses_the_start_of_its_transaction"),
            (RESERVE, "test_hazard_24_due_times_begin_when_it_is_submitted"),
            (INLINE, "test_hazard_24_the_lease_counts_from_the_statement_and_the_caller_never_believes_longer"),
        ),
    ),
    25: (
        "the reaper can never delete a key",
        (("tests/sweeper/test_retention.py", "test_a_key_past_its_time_becomes_a_tombstone_and_then_goes"),),
    ),
    26: (
        "no total deadline",
        (
            ("tests/calls/test_deadline.py", "test_a_server_that_drips_is_cut_off_and_lost"),
            ("tests/sending/test_overrunning.py", "test_slots_that_hang_claim_nothing_more"),
            ("tests/sending/test_overrunning.py", "test_an_asynchronous_one_is_ended_at_its_deadline"),
        ),
    ),
    27: (
        "the schedule is too short, or an outage uses it up",
        (
            (SETTLING, "test_hazard_27_what_could_not_be_asked_counts_as_nothing"),
            (SETTLING, "test_hazard_27_a_cached_failure_uses_up_the_schedule_and_ends_with_an_operator"),
            ("tests/settling/test_late.py", "test_an_absence_after_a_5xx_is_no_verdict"),
            ("tests/protection/test_outage.py", "test_an_outage_across_the_end_of_the_replay_window"),
            ("tests/stripe/test_settling.py", "test_hazard_27_what_is_rolled_forward_is_found_among_the_events"),
            ("tests/matrix/test_replaying.py", "test_one_effect_all_settled_and_nothing_forbidden"),
        ),
    ),
    28: (
        "events that should not use up an attempt do so",
        (
            (SETTLING, "test_hazards_28_44_62_queued_rows_end_by_age_not_by_attempts"),
            (EXPIRED, "test_swept_three_times_its_verdict_opens_crashes_worker"),
        ),
    ),
    29: (
        "dead letters: their state, what closes them, what the client gets",
        (("tests/accept/test_decisions.py", "test_hazard_29_what_a_client_hears_of_an_open_dead_letter"),),
    ),
    31: (
        "a webhook that cannot be applied is lost",
        (
            (APPLYING, "test_hazard_31_what_cannot_be_applied_is_kept_and_tried_again"),
            (APPLYING, "test_hazard_31_an_unmatched_event_is_due_when_its_reference_is_written"),
        ),
    ),
    32: (
        "a worker gives a row back while its call starts",
        (
            (CHECK, "test_given_back_wins_over_started"),
            (CHECK, "test_a_claim_that_started_cannot_be_given_back"),
            (WORKER, "test_sigterm_finishes_what_runs_and_claims_nothing_more"),
        ),
    ),
    33: (
        "rolling deploys",
        ((SETTLING, "test_hazard_33_a_newer_format_is_left_to_a_newer_worker"),),
    ),
    34: (
        "SQL producers: what renders and canonicalises the request",
        (
            ("tests/producers/test_jcs.py", "test_documents_are_refused_as_in_python"),
            ("tests/producers/test_rendering.py", "test_a_thousand_rows_and_two_workers_each_is_rendered_once"),
            ("tests/producers/test_kills.py", "test_a_killed_worker_leaves_it_to_be_rendered_or_to_be_sent"),
        ),
    ),
    35: (
        "the stored answer depends on which process settled",
        ((SETTLING, "test_hazard_35_the_same_answer_whoever_settled"),),
    ),
    36: (
        "cases that the HTTP table did not have",
        (
            (WAITING, "test_hazard_36_a_wait_that_ends_at_rest_hears_that_nothing_happened"),
            (ASKING, "test_failed_retryable_is_taken_up_again"),
            (ASKING, "test_a_dead_letter_that_needs_a_person"),
        ),
    ),
    37: (
        "evidence is pruned under open rows",
        (
            ("tests/schema/test_guards.py", "test_hazard_37_retention_may_not_delete_what_may_be_asked"),
            ("tests/schema/test_guards.py", "test_hazard_37_no_session_variable_opens_it"),
        ),
    ),
    38: (
        "card data, keys, erasure",
        (
            (API_CONTENT, "test_hazard_38_card_data_is_refused_before_it_is_stored"),
            (API_CONTENT, "test_a_key_that_looks_personal_is_counted_and_never_shown"),
            (PRODUCERS, "test_hazard_38_card_data_is_refused_before_anything_is_stored"),
        ),
    ),
    39: (
        "no replay and no look-up (a mail, a text message)",
        (
            ("tests/settling/test_standing_orders.py", "test_assume_done_when_nothing_sent_can_act_any_more"),
            ("tests/settling/test_standing_orders.py", "test_assume_not_done_redrives_as_the_operation_says"),
            ("tests/settling/test_standing_orders.py", "test_a_refusal_after_an_assumption_is_a_conflict"),
            ("tests/sending/test_send.py", "test_the_standing_order_decides_for_a_mail_and_is_on_record"),
            ("tests/matrix/test_contracts.py", "test_where_nothing_can_be_asked_nothing_is_sent_again"),
        ),
    ),
    40: (
        "foreign traffic floods the ledger check and the unmatched webhooks",
        (
            ("tests/accept/test_marks.py", "test_hazard_40_what_is_frozen_carries_deployment_and_key"),
            (
                "tests/accept/test_marks.py",
                "test_hazard_40_an_application_of_another_environment_accepts_nothing_that_it_would_mark_wrongly",
            ),
            ("tests/providers/test_mark.py", "test_hazard_40_an_object_is_ours_only_by_our_mark"),
            ("tests/webhooks/test_unmatched.py", "test_hazard_40_foreign_traffic_calls_nobody"),
            ("tests/webhooks/test_unmatched.py", "test_hazard_40_the_mark_decides_whose_it_is"),
            ("tests/webhooks/test_unmatched.py", "test_hazard_40_an_exclusive_account_has_no_foreign_events"),
            ("tests/webhooks/test_batches.py", "test_hazard_40_a_test_event_is_never_a_live_one"),
            ("tests/ledger/test_classes.py", "test_hazard_40_without_a_mark_only_an_account_of_our_own_shows_theirs"),
            ("tests/ledger/test_walk.py", "test_a_walk_beside_live_traffic_finds_nothing"),
        ),
    ),
    42: (
        "NOTIFY inside the caller's transaction",
        (
            (WORKER, "test_a_nudge_wakes_an_idle_worker_and_its_listener_comes_back"),
            (PRODUCERS, "test_hazard_42_it_notifies_only_when_it_is_asked"),
        ),
    ),
    43: (
        "a role's defaults change the daemons' isolation level",
        (
            (RECOVERY, "test_hazard_5_commits_of_daemons_are_durable_whatever_the_role_says"),
            ("tests/handlers/test_once.py", "test_isolation_search_path_and_timeouts_are_the_runner_s_own"),
        ),
    ),
    44: (
        "a call is made too late to be right",
        (
            (SETTLING, "test_hazards_28_44_62_queued_rows_end_by_age_not_by_attempts"),
            ("tests/sweeper/test_too_old.py", "test_a_queued_row_that_is_too_old_comes_to_rest"),
        ),
    ),
    45: (
        "metrics watch only `unknown`",
        (
            (SETTLING, "test_hazard_45_the_age_of_everything_unsettled_is_a_metric"),
            ("tests/cli/test_looking.py", "test_status_shows_the_oldest_of_everything"),
        ),
    ),
    46: (
        "no rule covers a redrive: it is neither a replay nor refused",
        (("tests/demo/test_proof.py", "test_a_second_send_after_a_proof_that_nothing_was_executed"),),
    ),
    47: (
        "local operations: order inside the transaction",
        (
            (RESERVE, "test_hazard_47_complete_is_the_end_in_the_same_transaction"),
            (RESERVE, "test_hazard_47_what_no_caller_may_store_for_ever"),
        ),
    ),
    48: (
        "no rule says to which calls limits, pause and breaker apply",
        (
            (SETTLING, "test_hazards_48_72_the_concurrency_of_the_fleet_stands_in_the_claim"),
            (SETTLING, "test_hazard_48_a_paused_lane_claims_and_asks_nothing"),
            ("tests/protection/test_probe.py", "test_a_provider_without_keys_is_asked_before_it_is_paid"),
            ("tests/protection/test_rate.py", "test_a_fleet_keeps_its_rate_and_uses_it"),
            ("tests/protection/test_pause.py", "test_paused_calls_leave_look_ups_and_send_no_replay"),
            ("tests/shares/test_limits.py", "test_hazard_48_of_a_paused_lane_no_row_is_read"),
        ),
    ),
    49: (
        "two numbers get one fingerprint",
        ((CONTENT, "test_hazard_49_what_cannot_be_held_exactly_is_refused_and_writes_nothing"),),
    ),
    50: (
        "small things: intent and key move together; one open row, one open entry",
        (
            (TRANSITIONS, "test_hazard_50_an_intent_moves_as_its_key_does"),
            ("tests/protection/test_concurrency.py", "test_who_asks_has_its_share_and_no_more"),
        ),
    ),
    51: (
        "a request is cancelled, and executed afterwards",
        (
            (OPERATOR, "test_a_cancelled_key_answers_cancelled_and_never_executes"),
            ("tests/cli/test_operator_races.py", "test_either_the_claim_or_the_cancellation_has_the_row"),
        ),
    ),
    52: (
        "a proof shows that the object exists, but not its end",
        (
            (SETTLING, "test_hazard_52_pending_is_a_proof_of_existence"),
            (SETTLING, "test_hazard_52_a_resting_key_goes_back_to_work_when_the_provider_has_it"),
            (AWAITING, "test_hazard_52_an_open_proof_of_an_earlier_attempt_stops_the_next"),
        ),
    ),
    53: (
        "the claim does not see a deferred proof",
        (
            (RACES, "test_a_stored_proof_beats_the_claim"),
            (INLINE, "test_hazard_53_a_row_at_rest_with_an_unapplied_proof_is_not_taken_up"),
            ("tests/webhooks/test_hints.py", "test_hazard_53_a_hint_keeps_a_queued_call_from_being_sent"),
            ("tests/webhooks/test_hints.py", "test_hazard_53_a_hint_stands_against_retry_redrive_and_cancel"),
        ),
    ),
    54: (
        "an earlier holder may still be frozen",
        (
            (SETTLING, "test_hazard_54_an_earlier_holder_may_still_be_frozen"),
            (INLINE_KILLS, "test_hazard_54_a_caller_that_lives_and_has_let_go_is_known_to_be_done"),
        ),
    ),
    55: (
        "a synchronous provider keeps sending after its call was reported",
        (
            (
                "tests/sending/test_overrunning.py",
                "test_its_claim_is_left_to_the_sweeper_and_its_late_result_is_a_proof",
            ),
            ("tests/sending/test_overrunning.py", "test_slots_that_hang_claim_nothing_more"),
            ("tests/sending/test_overrunning.py", "test_an_asynchronous_one_is_ended_at_its_deadline"),
            ("tests/provider_conformance/test_function.py", "test_a_function_that_ignores_its_deadline_is_caught"),
        ),
    ),
    56: (
        "two retries of a finished key at once",
        (("tests/accept/test_races.py", "test_hazard_56_two_retries_of_a_completed_key_both_get_the_answer"),),
    ),
    57: (
        "a proof must name its step",
        (("tests/webhooks/test_rules.py", "test_hazard_57_an_earlier_key_of_the_same_call_is_its_own"),),
    ),
    58: (
        "`on_settled` gets events that are not settled, in any order",
        (("tests/events/test_numbers.py", "test_hazard_58_automatic_redrives_say_nothing_before_the_end"),),
    ),
    59: (
        "after lost commits the client's own retry is a new payment",
        (
            (CONTENT, "test_hazard_59_the_same_wish_has_the_same_provider_key_after_lost_commits"),
            ("tests/producers/test_derived.py", "test_hazard_59_the_provider_key_is_python_s"),
        ),
    ),
    60: (
        "idem doubts too much after a synchronous fail-over, too little after a snapshot",
        (
            (RECOVERY, "test_hazard_60_a_new_timeline_alone"),
            (RECOVERY, "test_hazard_60_resting_rows_are_suspect_too"),
            (LAST_MOMENT, "test_hazard_60_a_resting_row_is_taken_up_by_its_client_within_the_memory_only"),
            (RECOVERY, "test_hazard_60_the_log_went_back"),
        ),
    ),
    61: (
        "the outbox row has a list of statuses, but not of transitions",
        ((TRANSITIONS, "test_hazard_61_exactly_the_listed_outbox_transitions_succeed"),),
    ),
    62: (
        "no retry is ever exhausted",
        (
            (SETTLING, "test_hazards_28_44_62_queued_rows_end_by_age_not_by_attempts"),
            ("tests/protection/test_outage.py", "test_an_outage_across_the_end_of_the_replay_window"),
        ),
    ),
    63: (
        "one tenant can stop a lane",
        (
            ("tests/calls/test_breaker.py", "test_one_row_with_a_wrong_configuration_never_stops_a_lane"),
            (
                "tests/protection/test_probe.py",
                "test_refused_credentials_are_tried_with_a_row_because_a_look_says_nothing_about_them",
            ),
        ),
    ),
    64: (
        "a hanging name resolution stops every lane",
        (
            ("tests/calls/test_resolve.py", "test_hung_dns_in_one_lane_does_not_delay_another"),
            ("tests/calls/test_resolve.py", "test_the_default_executor_is_used_for_nothing"),
            ("tests/sending/test_send.py", "test_a_hung_name_in_one_lane_holds_up_no_other"),
        ),
    ),
    65: (
        "`answer` runs user code before an immutable write",
        (
            (SETTLING, "test_hazards_35_65_an_answer_that_cannot_be_rendered_does_not_hold_up_the_effect"),
            ("tests/sending/test_contract.py", "test_a_worker_without_the_code_leaves_the_row_alone"),
        ),
    ),
    66: (
        "`reserve` on a `failed_retryable` key",
        (
            (RESERVE, "test_hazard_66_a_key_at_rest_goes_back_to_work_inside_reserve"),
            (RESERVE, "test_hazard_66_reserve_without_submit_does_not_commit"),
            (
                "tests/adopt/test_commit_fails.py",
                "test_a_key_at_rest_goes_back_to_work_and_their_rows_are_not_written_twice",
            ),
        ),
    ),
    67: (
        "each pass joins all running keys (no pass does; tests hold the plans)",
        (("tests/schema/test_plans.py", "test_ib_052_a_hot_statement_reads_by_its_batch"),),
    ),
    68: (
        "awaiting, then not found",
        (
            (SETTLING, "test_hazards_14_68_absent_for_what_the_provider_had_accepted_is_a_conflict"),
            (AWAITING, "test_hazard_68_not_found_after_an_interim_answer_is_a_conflict"),
            ("tests/matrix/test_replaying.py", "test_one_effect_all_settled_and_nothing_forbidden"),
        ),
    ),
    69: (
        "a lost answer to the claim may still be a commit",
        ((WORKER, "test_hazards_21_69_a_claim_whose_answer_is_lost_is_given_back"),),
    ),
    70: (
        "one request has two fingerprints",
        (
            (API_CONTENT, "test_hazard_70_the_same_wish_over_http_and_in_a_transaction_is_one"),
            (PRODUCERS, "test_hazard_70_one_wish_has_one_key_by_sql_and_by_python"),
        ),
    ),
    71: (
        "`completes_when` against the contract's `answer`",
        ((FLOW, "test_hazard_71_a_key_that_completes_when_the_object_exists"),),
    ),
    72: (
        "two workers each count 39 of 40 calls",
        (
            (SETTLING, "test_hazards_48_72_the_concurrency_of_the_fleet_stands_in_the_claim"),
            ("tests/shares/test_limits.py", "test_hazard_72_two_claims_at_once_never_exceed_an_exact_limit"),
        ),
    ),
    74: (
        "the version of a key that may be gone",
        ((SETTLING, "test_hazard_74_the_version_is_the_intents_and_every_proof_raises_it"),),
    ),
    75: (
        "small things (SET CONSTRAINTS between reserve and submit)",
        (
            (RESERVE, "test_hazard_75_set_constraints_makes_the_check_at_once"),
            ("tests/schemes/test_scheme_settings.py", "test_hazard_75_two_accounts_with_one_secret_are_refused"),
            ("tests/schemes/test_scheme_settings.py", "test_hazard_75_one_text_under_two_schemes_is_one_secret"),
            ("tests/ledger/test_classes.py", "test_hazard_75_a_second_object_under_one_key_is_seen"),
        ),
    ),
}

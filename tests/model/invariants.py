"""What must hold. A safety rule looks at one action with the states before and after it, and says whether it is broken.
`at_rest` is the other half: where an intent may stay for ever (`explorer.explore` asks whether it can get there)."""

from __future__ import annotations

from collections.abc import Callable

from model.state import FIRST, SECOND, UNDO, Action, Intent, State, World, key_of, stand_there

Broken = Callable[[World, State, Action, State], bool]


def an_effect_happens_once(world: World, before: State, action: Action, after: State) -> bool:
    """Each forward step has one effect at most, unless an operator said without a proof that it had none."""
    return action.who == "provider" and any(
        max(effects[:2]) > 1 and not intent.word for effects, intent in zip(after.effects, after.intents, strict=True)
    )


def a_compensation_happens_once(world: World, before: State, action: Action, after: State) -> bool:
    """The same of a compensation."""
    return action.who == "provider" and any(
        effects[2] > 1 and not intent.word for effects, intent in zip(after.effects, after.intents, strict=True)
    )


def steps_begin_in_order(world: World, before: State, action: Action, after: State) -> bool:
    """The second step is sent only when the end of the first is recorded as succeeded, and its effect exists."""
    if not begins_a_call(action) or action.step != SECOND:
        return False
    intent = before.intents[action.intent]
    return intent.ends[0] != "succeeded" or not (before.effects[action.intent][0] or intent.word)


def a_compensation_follows_a_verdict(world: World, before: State, action: Action, after: State) -> bool:
    """A compensation begins only when its step is done and the next one is proven refused, or was cancelled."""
    if action.intent < 0 or begun(after, action.intent) != UNDO or begun(before, action.intent) == UNDO:
        return False
    intent = after.intents[action.intent]
    if intent.ends[0] != "succeeded":
        return True
    if intent.ends[1] == "refused":
        keys = (key_of(world, action.intent, SECOND, generation) for generation in (1, 2))
        return all(after.word(key) != "refused" for key in keys)
    return intent.ends[1] != "cancelled" or (after.effects[action.intent][1] > 0 and not intent.word)


def a_step_that_is_done_begins_no_call(world: World, before: State, action: Action, after: State) -> bool:
    """No claim and no replay of a step that has its end."""
    return begins_a_call(action) and before.intents[action.intent].ends[action.step - 1] is not None


def a_proof_changes_its_own_step_alone(world: World, before: State, action: Action, after: State) -> bool:
    """A proof about a step ends that one, and changes nothing of another that is open."""
    if action.who != "webhook" or before.intents[action.intent] == after.intents[action.intent]:
        return False
    return begun(before, action.intent) != action.step


def an_end_is_true(world: World, before: State, action: Action, after: State) -> bool:
    """What is recorded as succeeded has happened, any other end has not, unless an operator said so."""
    for number, (old, new) in enumerate(zip(before.intents, after.intents, strict=True)):
        for step, (was, end) in enumerate(zip(old.ends, new.ends, strict=True), 1):
            if was == end or new.word:
                continue
            happened = after.effects[number][step - 1] > 0
            if (end == "succeeded") != happened:
                return True
    return False


def an_end_stays(world: World, before: State, action: Action, after: State) -> bool:
    """The end of a step is written once."""
    return any(
        was not in (None, end)
        for old, new in zip(before.intents, after.intents, strict=True)
        for was, end in zip(old.ends, new.ends, strict=True)
    )


def the_recovery_point_is_the_last_end(world: World, before: State, action: Action, after: State) -> bool:
    """It never goes back, and it is the number of the last step with an end."""
    for old, new in zip(before.intents, after.intents, strict=True):
        last = max((step for step, end in enumerate(new.ends, 1) if end), default=0)
        if new.recovery_point != last or new.recovery_point < old.recovery_point:
            return True
    return False


def an_answer_stays(world: World, before: State, action: Action, after: State) -> bool:
    """The stored answer never changes."""
    return any(old.answer not in (None, new.answer) for old, new in zip(before.intents, after.intents, strict=True))


def an_answer_is_true(world: World, before: State, action: Action, after: State) -> bool:
    """When it is stored, it names what stands at the provider, and nothing more."""
    for number, (old, new) in enumerate(zip(before.intents, after.intents, strict=True)):
        if new.answer is None or new.answer == old.answer or new.word:
            continue
        word, standing = new.answer
        if standing != stand_there(after.effects[number]):
            return True
        if (word == "succeeded" and FIRST not in standing) or (word in ("cancelled", "rejected") and standing):
            return True
    return False


def nothing_happens_behind_an_end(world: World, before: State, action: Action, after: State) -> bool:
    """When an intent is complete, nothing of it happens any more, and a rejected or cancelled one has no effect that
    its answer does not name."""
    if action.who != "provider" or before.effects == after.effects:
        return False
    intent = before.intents[action.intent]
    return intent.state == "completed" and not intent.word


def a_rejected_intent_has_no_effect(world: World, before: State, action: Action, after: State) -> bool:
    """What an operator has rejected never happens."""
    return any(
        new.answer is not None and new.answer[0] == "rejected" and any(effects)
        for new, effects in zip(after.intents, after.effects, strict=True)
    )


def what_nobody_approved_is_not_sent(world: World, before: State, action: Action, after: State) -> bool:
    """A row that wants an approval is neither due, claimed nor sent before it has one."""
    return any(
        flow.approve and not new.approved and new.row is not None and new.row.status not in ("approval", "held")
        for flow, new in zip(world.flows, after.intents, strict=True)
    )


def an_order_runs_one_at_a_time(world: World, before: State, action: Action, after: State) -> bool:
    """A follower is claimed only when no earlier intent of its order is open, whole flows, and no refusal holds it."""
    if not world.ordered or not begins_a_call(action):
        return False
    heads = before.intents[: action.intent]
    return 0 < before.order_held <= action.intent or any(
        one.row is not None and one.key not in ("none", "accepting") and not one.skipped for one in heads
    )


def a_key_outlives_its_flow(world: World, before: State, action: Action, after: State) -> bool:
    """A key never expires while its intent is partly done or at work."""
    for old, new in zip(before.intents, after.intents, strict=True):
        if old.key != "expired" and new.key == "expired":
            partly = new.state != "completed" and new.recovery_point > 0
            if partly or new.state in ("in_progress", "unknown"):
                return True
    return False


def no_step_begins_behind_an_expired_key(world: World, before: State, action: Action, after: State) -> bool:
    """What its client was told did not happen, and may have sent again, goes on by an operator's word alone."""
    if action.who == "operator":
        return False
    for old, new in zip(before.intents, after.intents, strict=True):
        rested = old.key == "expired" and old.state == "failed_retryable"
        if rested and new.ends != old.ends and new.row is not None and new.row.status != "held":
            return True
    return False


def an_open_intent_has_one_row(world: World, before: State, action: Action, after: State) -> bool:
    """An intent that is not complete has its open row (its own, until its key is over), a complete one has none."""
    for new in after.intents:
        if new.key in ("none", "accepting"):
            continue
        if new.state == "completed" and new.row is not None:
            return True
        if new.row is None and new.state != "completed" and (new.key, new.state) != ("expired", "failed_retryable"):
            return True
    return False


OF_EFFECTS: tuple[Broken, ...] = (
    an_effect_happens_once,
    a_compensation_happens_once,
    nothing_happens_behind_an_end,
    a_rejected_intent_has_no_effect,
)
"""What the provider's actions may break; they change nothing else."""
OF_RECORDS: tuple[Broken, ...] = (
    steps_begin_in_order,
    a_compensation_follows_a_verdict,
    a_step_that_is_done_begins_no_call,
    a_proof_changes_its_own_step_alone,
    an_end_is_true,
    an_end_stays,
    the_recovery_point_is_the_last_end,
    an_answer_stays,
    an_answer_is_true,
    a_rejected_intent_has_no_effect,
    what_nobody_approved_is_not_sent,
    an_order_runs_one_at_a_time,
    a_key_outlives_its_flow,
    no_step_begins_behind_an_expired_key,
    an_open_intent_has_one_row,
)
"""What idem's own statements may break."""
LIVENESS = "everything_comes_to_rest"
"""From each state a way leads, without an operator, to one in which every intent is at rest."""


def broken(world: World, before: State, action: Action, after: State) -> list[str]:
    """The rules of safety that an action breaks."""
    rules = OF_EFFECTS if action.who == "provider" else OF_RECORDS
    if rules is OF_RECORDS and before.intents is after.intents:
        return []
    return [rule.__name__ for rule in rules if rule(world, before, action, after)]


def begins_a_call(action: Action) -> bool:
    """A claim or the beginning of a replay: whoever has it may send."""
    return action.what in ("claims", "begins a replay")


def begun(state: State, number: int) -> int:
    """The number of the open step; 0: none."""
    row = state.intents[number].row
    return 0 if row is None else row.step


def at_rest(world: World, state: State) -> bool:
    """Whether every intent may stay as it is: complete, or its client knows that nothing more happens, or people do."""
    told = False
    for intent in state.intents:
        resting = _rests(intent)
        if not resting and intent.row is not None and intent.row.status == "waiting":
            # Behind one that is at rest and open: `intents blocked` names it.
            resting = told or bool(state.order_held)
        if not resting:
            return False
        told |= intent.row is not None and not intent.skipped
    return True


def _rests(intent: Intent) -> bool:
    row = intent.row
    if intent.key == "none" or intent.state == "completed" or intent.letters:
        return True
    if row is None:
        return intent.state == "failed_retryable"
    if row.status == "approval":
        return True
    # The client was told "nothing happened, the same key": that is only true where no step is done.
    told = intent.key in ("failed_retryable", "expired") and intent.recovery_point == 0
    return row.status == "held" and not row.due and told


def automatic(action: Action) -> bool:
    """What happens without a person, and without a provider's word: nor is a row given up for its age."""
    return action.who not in ("operator", "client", "webhook") and not (
        action.what == "finds too old" and not action.about
    )

"""SQL about the step of a row, where statements read what is decided from."""

CALL = "coalesce(c.operation || ' ' || c.step_name, c.operation)"
"""The name of the call that row `c` makes: its operation's, with the step's where it is one of a flow."""


STEP_NAME = "CASE WHEN n.plan IS NOT NULL THEN n.plan -> (r.step - 1) ->> 'name' END"
"""The name of the step that request `r` of intent `n` is of; NULL: its operation has one call."""
REFERENCE_OF_STEP = """coalesce(
              (SELECT s.provider_reference FROM idem.steps s WHERE s.outbox_id = r.outbox_id),
              (SELECT o.provider_reference FROM idem.outbox o WHERE o.id = r.outbox_id))"""
"""The provider's reference of the step that request `r` is of: from its end, or its open row."""
STATE_AND_OUTCOME = """CASE WHEN d.name IS NULL THEN n.state ELSE 'completed' END AS state,
       CASE d.outcome WHEN 'skipped' THEN 'cancelled' ELSE d.outcome END AS outcome"""
"""State and outcome of a step of flow `n`, whose end is `d`, as an intent has them: with its end it is complete,
whatever its flow is doing, and what was not made did not happen."""


def place_of_letter(column: str) -> str:
    """Where the step goes that dead letter `d` of intent `n` is about: `provider` or `account` of the flow's plan."""
    return f"""CASE WHEN n.plan IS NOT NULL
            THEN (SELECT e ->> '{column}' FROM jsonb_array_elements(n.plan) AS p (e)
                   WHERE e ->> 'name' = d.details ->> 'step' LIMIT 1) END"""  # noqa: S608


def contradiction(row: str) -> str:
    """Whether proofs about this row disagree: an open entry says so. One that names another step of its flow, and that
    one alone, is about that (hazard 57)."""
    return f"""(SELECT bool_or(l.resolved_at IS NULL AND l.reason IN ('conflict', 'possible_duplicate')
                       AND (l.seen > 1 OR coalesce(l.details ->> 'step', {row}.step_name)
                                          IS NOT DISTINCT FROM {row}.step_name))
          FROM idem.dead_letters l WHERE l.intent_id = {row}.intent_id) IS TRUE"""  # noqa: S608


def step_columns(row: str) -> str:
    """The columns that only a step of a flow has: its name, the plan, and what the other steps have come to."""
    return f"""{row}.step_name,
       CASE WHEN {row}.step_name IS NOT NULL
            THEN (SELECT p.plan FROM idem.intents p WHERE p.id = {row}.intent_id) END AS plan,
       CASE WHEN {row}.step_name IS NOT NULL THEN idem.step_ends({row}.intent_id) END AS ends"""  # noqa: S608

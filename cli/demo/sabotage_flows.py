"""The sabotages of flows: statements that find a victim and break its rule, in one transaction of the saboteur's.

A table's trigger that would refuse a statement is off while it runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

from idem.cli.demo.scenario import KEYED, KEYLESS
from idem.cli.demo.settings import Sabotage


@dataclass(frozen=True, slots=True)
class Blow:
    """One statement, and the table and the trigger that it gets past, if any."""

    statement: LiteralString
    past: tuple[str, str] | None = None


SECOND_DUE = """
SELECT o.id, o.intent_id, n.idempotency_key AS key
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.step = 2 AND o.step_name = 'charge' AND o.status IN ('unfrozen', 'pending')
   AND n.plan -> 0 ->> 'provider' = %(provider)s
 ORDER BY o.id LIMIT 1 FOR UPDATE OF o, n SKIP LOCKED
"""
# The refusal is planned with the bank. A row that is claimed has its plan in a worker's memory.
NOT_REFUSED_YET = """
SELECT o.id, o.intent_id, n.idempotency_key AS key
  FROM idem.outbox o JOIN idem.intents n ON n.id = o.intent_id
 WHERE o.step <= 2 AND o.status IN ('unfrozen', 'pending') AND n.params -> 'faults' -> 'receipt' ? 'decline'
   AND (n.params -> 'faults' -> 'refund' ? 'decline') IS NOT TRUE AND jsonb_array_length(n.plan) > 3
 ORDER BY o.id LIMIT 1 FOR UPDATE OF o, n SKIP LOCKED
"""
FIND: Mapping[Sabotage, tuple[LiteralString, Mapping[str, str]]] = {
    # Where each does harm: the one bank acts twice, the other takes the shared key for a replay.
    Sabotage.REPEAT_STEP: (SECOND_DUE, {"provider": KEYLESS}),
    Sabotage.SHARE_KEY: (SECOND_DUE, {"provider": KEYED}),
    Sabotage.SKIP_UNDO: (NOT_REFUSED_YET, {}),
}
"""The query for a victim of each sabotage, with its values."""

# What a resume does whose recovery point was not in the statement that ended the step.
FORGET_END = "DELETE FROM idem.steps WHERE intent_id = %(intent_id)s AND step = 1"
FORGET_ROW = "DELETE FROM idem.outbox WHERE id = %(id)s"
REPEAT = """
INSERT INTO idem.outbox (id, intent_id, step, step_name, status, status_since, available_at, start_before, operation,
                         provider, account, origin, provider_key, replay_window, marks_start)
SELECT idem.uuid7(), n.id, 1, s.name, 'unfrozen', statement_timestamp(), statement_timestamp(),
       statement_timestamp() + interval '1 hour', n.operation, s.provider, s.account, s.origin,
       idem.provider_key(i.hmac_inner, i.hmac_outer, n.tenant_id, n.operation, n.idempotency_key, 1, 1),
       s.replay_window, s.marks_start
  FROM idem.intents n CROSS JOIN idem.installation i CROSS JOIN LATERAL jsonb_to_record(n.plan -> 0) AS s (
       name text, provider text, account text, origin text, replay_window integer, marks_start boolean)
 WHERE n.id = %(intent_id)s
"""
# What a key that is derived without its step would be.
SHARE = """
UPDATE idem.outbox o
   SET status = 'unfrozen', generation = o.generation + 1, available_at = statement_timestamp(),
       provider_key = idem.provider_key(i.hmac_inner, i.hmac_outer, n.tenant_id, n.operation, n.idempotency_key, 1, 1)
  FROM idem.intents n CROSS JOIN idem.installation i
 WHERE o.id = %(id)s AND n.id = o.intent_id
"""
FORGET_UNDOING = """
UPDATE idem.intents n
   SET plan = (SELECT jsonb_agg(s.step ORDER BY s.number)
                 FROM jsonb_array_elements(n.plan) WITH ORDINALITY AS s (step, number)
                WHERE s.step -> 'undoes' = 'null')
 WHERE n.id = %(intent_id)s
"""
BLOWS: Mapping[Sabotage, Sequence[Blow]] = {
    Sabotage.REPEAT_STEP: (
        Blow(FORGET_END, ("steps", "ends_of_steps_are_kept")),
        Blow(FORGET_ROW, ("outbox", "outbox_row_leaves_when_done")),
        Blow(REPEAT),
    ),
    Sabotage.SHARE_KEY: (Blow(SHARE, ("outbox", "outbox_transition_is_listed")),),
    Sabotage.SKIP_UNDO: (Blow(FORGET_UNDOING),),
}

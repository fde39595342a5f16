"""The faults that are planted: each changes one action, or the one rule that it follows, and a rule must break."""

from enum import Enum


class Mutant(Enum):
    # The ten of the bar.
    NO_RECOVERY_POINT = "the statement that ends a step does not write the recovery point"
    STEP_KEY_WITHOUT_STEP = "the provider key of a step is derived without the step"
    PROOF_NAMES_NO_STEP = "a late proof of step 1 is applied to whatever step is open"
    COMPENSATION_BEFORE_VERDICT = "a compensation begins when its step is unknown"
    COMPENSATION_SENT_TWICE = "an expired claim of a compensation goes back to the queue"
    CLAIMED_UNDER_UNKNOWN_HEAD = "the claim takes a waiting row whose head is unknown"
    PROMOTED_BY_NOBODY = "no statement makes the next waiting row of an order due"
    UNAPPROVED_PROMOTED = "the promotion takes rows that wait for an approval"
    REJECTED_SENT = "a rejection looks at the intent, and not whether its row was released meanwhile"
    EXPIRED_WHILE_OPEN = "the expiry of keys does not ask whether the flow is partly done"
    # More, for what the design does not say in so many words.
    OLD_REFUSAL_APPLIED = "a refusal under an earlier provider key ends the step that was redriven since"
    ACCEPT_WITHOUT_LOCK = "accept does not lock the ordering key"
    ORDER_OF_ROWS = "the order is that of the rows, and a flow's next row comes after its followers' rows"
    RETRY_JUMPS_THE_ORDER = "the client's retry of a held follower makes it due, whatever is before it"
    RETRY_APPROVES = "the client's retry of a row that nobody approved makes it due"
    SWEEPER_ENDS_HOLD = "the sweeper promotes behind a refused head that holds"
    ABSENT_AT_ONCE = "an absence is a verdict before the quiet time is over"
    REPORT_WITHOUT_TOKEN = "a late report is written as if its claim still held the row"
    SILENT_REST = "a flow that is partly done rests without a dead letter, because its client comes again"
    CANCELLED_AND_NOT_UNDONE = (
        "the answer of a cancelled flow says that all was undone, although its compensation was not"
    )
    GOES_ON_BEHIND_EXPIRY = "a late proof of a step whose key has expired begins the next one"
    SKIPPED_HEAD_HOLDS = "a refused head holds its followers although an operator let them pass before"

"""The contract itself: mistakes that fail at start-up, and times that contradict each other."""

from datetime import UTC, datetime

from idem.outbox.config.settings import InstallationSettings
from idem.outbox.domain.outcomes import Succeeded
from idem.outbox.providers import contract_checks
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.outcome_rules import Says
from idem.testing.providers.calls import Calls
from idem.testing.providers.errors import applies, must

CONCLUDE = frozenset({Says.FINAL, Says.ANSWER, Says.PENDING})


class ContractRules:
    """Rules about the contract as data."""

    def test_the_contract_is_one_that_start_up_takes(self, calls: Calls) -> None:
        """`idem config check` has no error about it."""
        provider, worker = calls.world.provider, InstallationSettings().worker
        found = contract_checks.check(
            provider.contract,
            lease=worker.lease,
            margin=worker.margin,
            rules=not isinstance(provider, HttpProvider) or any(each.says in CONCLUDE for each in provider.outcome),
            events=provider.contract.events_settle,
            today=datetime.now(UTC).date(),
        )
        errors = [str(each) for each in found if each.level == "error"]
        must(not errors, "contract", "; ".join(errors))

    def test_a_healthy_call_fits_into_the_deadline(self, calls: Calls) -> None:
        """It takes less than half of the deadline: a call that takes longer than the deadline is unknown every time."""
        sent = calls.made()
        took, deadline = sent.seen.elapsed or 0.0, calls.contract.deadline
        must(took < deadline / 2, "deadline", f"{deadline:g} s is less than twice the {took:.1f} s of a healthy call")

    def test_keys_are_remembered_for_longer_than_a_call_may_fly(self, calls: Calls) -> None:
        """Otherwise a replay could arrive after the provider has forgotten the key."""
        contract = calls.world.provider.contract
        applies(contract.replays, "key: nothing is ever sent again under a key")
        message = f"{contract.key.margin:g} s is shorter than the flight limit of {contract.flight_limit:g} s"
        must(contract.key.margin >= contract.flight_limit, "key.margin", message)
        message = f"the first look-up comes at {contract.schedule[0]:g} s, after the last replay"
        must(contract.schedule[0] < contract.replay_window, "schedule", message)

    def test_what_is_final_stays_so(self, calls: Calls) -> None:
        """After the horizon an object that was read as final is still read as final."""
        applies(calls.contract.lookup.by_id, "lookup.by_id is not set")
        sent = calls.made()
        final = isinstance(sent.outcome, Succeeded) and not sent.outcome.interim
        applies(final and sent.reference is not None, "a healthy call of this world is not final at once")
        calls.past_the_horizon()
        for way in calls.by_id(sent, str(sent.reference)):
            lookup, _ = calls.lookup(calls.question(sent, sent.reference), way)
            must(isinstance(lookup, Succeeded), "outcome", f"it was read as final, and is now read as {lookup}")

"""The words of idem as data: states, outcomes, decisions, transitions, the provider contract, operations and keys."""

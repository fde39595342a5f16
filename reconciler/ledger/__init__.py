"""The ledger check: what the provider says that it made in a time, held against what this ledger says."""

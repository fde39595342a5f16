"""The vocabulary of idem, accept, claim, the one gate for changes of state, the provider contract and the worker.

Imports point down: nothing here knows the reconciler, the sweeper, the migrations, the test tools or the CLI.
"""

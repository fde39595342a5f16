"""The application of a demo with flows: its daemons import it (`app` in the demo's idem.toml)."""

from idem import Idem
from idem.cli.demo import flows

idem = Idem()
flows.define(idem)

"""`idem demo`: payments through a misbehaving bank, daemons that are killed, and a proof at the end.

    run(DemoSettings(payments=100)) == 0

The proof is read from three sides: the clients' log, the database and the bank's log.
"""

from idem.cli.demo.run import run
from idem.cli.demo.settings import DemoSettings, Sabotage

__all__ = ["DemoSettings", "Sabotage", "run"]

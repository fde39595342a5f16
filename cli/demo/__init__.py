"""`idem demo`: payments through a misbehaving bank, daemons that are killed, and a proof at the end.

    run(DemoSettings(payments=100)) == 0

The proof is read from three sides: the clients' log, the database and the bank's log.
"""

from idem.cli.demo.settings import DemoSettings, Sabotage

__all__ = ["DemoSettings", "Sabotage", "run"]


def run(settings: DemoSettings) -> int:
    """Run a demo and report: 0 if every promise held, 1 if one broke, 3 if a sabotage found no victim, 4 if the proof
    missed it, 130 if interrupted.

    Raises ConfigError for settings that cannot work, EmbeddedError if no server can start.
    """
    # Loaded only now: `idem --help` names the command without loading what it needs.
    from idem.cli.demo.ending import perform

    return perform(settings)

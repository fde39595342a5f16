"""`idem demo`: payments through a misbehaving bank, daemons that are killed, and a proof at the end.

    run(DemoSettings(payments=100)) == 0

The proof is read from three sides: the clients' log, the database and the bank's log.
"""

from idem.cli.demo.settings import DemoSettings, Sabotage

__all__ = ["DemoSettings", "Sabotage", "run"]


def run(settings: DemoSettings) -> int:
    """Play a demo and say what came of it: 0 if every promise held, 1 if one broke, 3 if a sabotage hit nobody,
    4 if the proof did not see it, 130 if it was interrupted.

    Raises ConfigError for settings that cannot work, EmbeddedError where no server can be had.
    """
    # Loaded only now: `idem --help` names the command without loading what it needs.
    from idem.cli.demo.performance import perform

    return perform(settings)

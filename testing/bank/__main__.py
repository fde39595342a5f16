"""`python -m idem.testing.bank settings.json`: run a bank, print its URL, exit at SIGTERM."""

import sys
from pathlib import Path

from idem.testing.bank.errors import BankError
from idem.testing.bank.process import run
from idem.testing.bank.settings import BankSettings


def main(arguments: list[str]) -> int:
    """Exit code 0: ended by a signal; 2: the settings, the log or the port cannot be used."""
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        sys.stderr.write("usage: python -m idem.testing.bank [settings.json]\n")
        return 2
    try:
        settings = BankSettings.from_json(Path(arguments[0]).read_bytes()) if arguments else BankSettings()
        run(settings, _say)
    except (BankError, OSError) as error:
        sys.stderr.write(f"bank: {error}\n")
        return 2
    return 0


def _say(url: str) -> None:
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

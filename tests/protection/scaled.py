"""The command `idem` with the constants of its code divided by one factor: `python scaled.py 20 worker run …`.

What idem.toml says is divided by whoever writes it; these are the waits that no setting reaches.
"""

import sys

from idem.cli.main import main
from idem.outbox.calls import breaker
from idem.outbox.daemon import daemon
from idem.sweeper import daemon as sweeping

if __name__ == "__main__":
    factor = float(sys.argv[1])
    breaker.FIRST_PAUSE /= factor
    breaker.LONGEST_PAUSE /= factor
    breaker.GRACE /= factor
    daemon.HEARTBEAT /= factor
    sweeping.AGES_INTERVAL /= factor
    sys.exit(main(sys.argv[2:]))

"""The channel on which idle daemons are woken: by a commit of the library, by a pause that was ended."""

from typing import Final

CHANNEL: Final = "idem_outbox"

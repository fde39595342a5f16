"""`idem.toml` and `IDEM_…`: read, checked as a whole, and turned into providers and operations."""

from idem.outbox.configuration.loading import Configuration, explain, load

__all__ = ["Configuration", "explain", "load"]

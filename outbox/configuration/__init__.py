"""`idem.toml` and `IDEM_…`: read, checked as a whole, and turned into providers and operations."""

from idem.outbox.configuration.loading import Configuration, database_url, explain, load

__all__ = ["Configuration", "database_url", "explain", "load"]

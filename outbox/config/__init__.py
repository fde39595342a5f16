"""`idem.toml` and `IDEM_…`: read, checked as a whole, and turned into providers and operations."""

from idem.outbox.config.loading import NAME, Configuration, database_address, explain, load

__all__ = ["NAME", "Configuration", "database_address", "explain", "load"]

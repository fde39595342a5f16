"""Connections to PostgreSQL: their address, sessions, pool, time limits and outages, and the installation in it."""

"""Exact values that know nothing of idem: strict JSON, durations, back-off, clocks, text that PostgreSQL can store."""

"""The worker: claims due rows, calls providers, and hands what it saw to settle."""

"""Settle: what an outcome or a proof means for a row, and the one gate that writes it."""

"""Signed events of providers: verified, stored and applied in one transaction, or tried again by the reconciler."""

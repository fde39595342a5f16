"""Signed events of providers: verified, stored and applied in one transaction, or tried again by the reconciler."""

from __future__ import annotations

from idem.reconciler.webhooks.delivery import Delivery, verified
from idem.reconciler.webhooks.endpoint import application, routes
from idem.reconciler.webhooks.ingest import ingest

__all__ = ["Delivery", "application", "ingest", "routes", "verified"]

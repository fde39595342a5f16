"""What `Idem.audit` finds: a route that a client's retry may run twice."""

from idem.application.audit import Unprotected as Unprotected

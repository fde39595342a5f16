"""The spine's catalogue with its one operation changed."""

import dataclasses
from typing import Any

from idem.outbox.domain.catalogue import Catalogue

NAME = "pay.keyed"


def changed(catalogue: Catalogue, **changes: Any) -> Catalogue:
    known = dataclasses.replace(catalogue.operations[NAME], **changes)
    return dataclasses.replace(catalogue, operations={**catalogue.operations, NAME: known})


def without(catalogue: Catalogue) -> Catalogue:
    rest = {name: known for name, known in catalogue.operations.items() if name != NAME}
    return dataclasses.replace(catalogue, operations=rest)

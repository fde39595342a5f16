"""idem runs a side effect in another system once, and tells you when it cannot be sure that it ran.

    from idem import Idem

    idem = Idem()                                    # reads idem.toml and IDEM_*; opens nothing
    charge = idem.operation("payments.create", Charge, provider="ledger", request=…, answer=…)

The other public names are in `idem.outcomes`, `idem.decisions`, `idem.errors`, `idem.inline`, `idem.sending` and
`idem.auditing`. `import idem` loads none of them (PEP 562): `idem.migrations` alone does not load the application.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idem.application.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            from idem.application import public

            names = [each for each in vars(public) if not each.startswith("_")]
            if name == "__all__":
                return names
            if name in names:
                return getattr(public, name)
        raise AttributeError(f"module 'idem' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__getattr__("__all__")]

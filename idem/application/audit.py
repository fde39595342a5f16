"""`audit`: which routes of an application change state without an idempotency contract. Looks only, calls nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from idem.application.misuse import Misuse

MARK: Final = "__idem_operation__"
"""The attribute of a dependency or an endpoint that has a contract."""
EXEMPT: Final = "__idem_exempt__"
"""The attribute of an endpoint that is meant to have none, and why."""
CHANGING: Final = frozenset({"POST", "PATCH"})
"""Methods that are not idempotent by themselves (RFC 9110, 9.2.2): PUT and DELETE need no key."""

View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Unprotected:
    """A route that a client's retry may run twice."""

    method: str
    path: str
    endpoint: str

    def __str__(self) -> str:
        return (
            f"{self.method} {self.path} ({self.endpoint}): a retry runs it again. Depend on an operation's `call` or "
            "`call_async`, or mark it: @charge.covers where it begins the call itself, @idem.exempt(reason) where it "
            "needs none"
        )


def exempt(reason: str) -> Callable[[View], View]:
    """A decorator for endpoints. Raises Misuse without a reason."""
    if not reason.strip():
        raise Misuse("exempt() needs a reason: a reader of the route must see why a retry may run it twice")

    def mark(view: View) -> View:
        setattr(view, EXEMPT, reason)
        return view

    return mark


def covers(view: View, operation: str) -> View:
    """Mark an endpoint that begins a call of this operation itself."""
    setattr(view, MARK, operation)
    return view


def audit(app: Any, exempted: Sequence[str] = ()) -> list[Unprotected]:
    """Every such route of a FastAPI, Starlette or Flask application, mounted ones too.

    Raises Misuse for another framework, and for an exemption that names no route.
    """
    if isinstance(exempted, str):
        raise Misuse(f"exempt= is a list of routes: give [{exempted!r}]")
    left = set(exempted)
    found: list[Unprotected] = []
    for method, path, endpoint, protected in _routes(app):
        said = f"{method} {path}"
        if said in left:
            left.discard(said)
        elif not protected and not hasattr(endpoint, EXEMPT):
            found.append(Unprotected(method, path, getattr(endpoint, "__qualname__", type(endpoint).__name__)))
    if left:
        raise Misuse(f"exempt names routes that are not there (any more): {', '.join(sorted(left))}")
    return found


def _routes(app: Any) -> Iterator[tuple[str, str, Any, bool]]:
    if hasattr(app, "url_map") and hasattr(app, "view_functions"):
        yield from _flask(app)
    elif hasattr(app, "routes"):
        yield from _starlette(app.routes, "")
    else:
        raise Misuse(f"{type(app).__name__} is not an application that audit can read: FastAPI, Starlette or Flask")


def _starlette(routes: Sequence[Any], prefix: str) -> Iterator[tuple[str, str, Any, bool]]:
    for route in routes:
        if hasattr(route, "effective_route_contexts"):
            # Newer FastAPI keeps an included router as one route.
            each = [context.starlette_route or context for context in route.effective_route_contexts()]
            yield from _starlette(each, prefix)
            continue
        inner = getattr(route, "routes", None)
        path = prefix + (getattr(route, "path", None) or "")
        endpoint = getattr(route, "endpoint", None)
        if endpoint is None and inner:
            yield from _starlette(inner, path)
            continue
        methods = set(getattr(route, "methods", None) or ())
        if isinstance(endpoint, type):  # a class with a method for each
            methods = {method for method in CHANGING if hasattr(endpoint, method.lower())}
        for method in sorted(CHANGING & methods):
            yield method, path, endpoint, hasattr(endpoint, MARK) or _depends(getattr(route, "dependant", None))


def _depends(dependant: Any) -> bool:
    if dependant is None:
        return False
    return hasattr(dependant.call, MARK) or any(_depends(each) for each in dependant.dependencies)


def _flask(app: Any) -> Iterator[tuple[str, str, Any, bool]]:
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        for method in sorted(CHANGING & set(rule.methods or ())):
            yield method, rule.rule, view, hasattr(view, MARK)

"""All writes of Stripe's API, from Stripe's own library: the paths, and which of them accept metadata."""

import ast
import re
from functools import cache
from pathlib import Path

import stripe

ROOT = Path(stripe.__file__).parent
PATH = re.compile(r"/v1/[a-z0-9_/{}]+")


@cache
def writes() -> dict[str, bool]:
    """The path of every POST of the v1 API, with `{…}` for ids, and whether its params have `metadata`."""
    found: dict[str, bool] = {}
    for file in sorted(ROOT.glob("**/*_service.py")):
        tree = ast.parse(file.read_text())
        modules = {
            alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            texts = [n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            paths = [text for text in texts if PATH.fullmatch(text)]
            if "post" in texts and len(paths) == 1:
                names = [text for text in texts if text.endswith("Params") and text in modules]
                found[paths[0]] = any("metadata" in _members(modules[name], name) for name in names)
    return found


@cache
def _members(module: str, name: str) -> frozenset[str]:
    tree = ast.parse((ROOT.parent / Path(*module.split("."))).with_suffix(".py").read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return frozenset(
        node.target.id for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    )

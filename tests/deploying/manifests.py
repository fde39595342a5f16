"""The Kubernetes manifests: as files, as kustomize renders them, and what Kubernetes' own schemas say about them."""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from deploying.images import not_here
from jsonschema import Draft202012Validator

HERE: Final = Path(__file__).parent
KUBERNETES: Final = HERE.parent.parent / "deploy/kubernetes"
OVERLAYS: Final = ("overlays/production", "overlays/production/migrate", "overlays/keda")
MANIFESTS: Final = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")

Document = dict[str, Any]


def documents(*paths: Path) -> list[Document]:
    """The documents in these files; of all manifests where none is named."""
    return [each for path in paths or MANIFESTS for each in yaml.safe_load_all(path.read_text()) if each]


def of_kind(found: list[Document], kind: str) -> dict[str, Document]:
    """The documents of one kind, by name."""
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def pod(document: Document) -> Document:
    """The pod that a Deployment or a Job makes."""
    found: Document = document["spec"]["template"]["spec"]
    return found


def rendered(overlay: str) -> list[Document]:
    """What `kubectl apply -k` would apply. Skips where neither kubectl nor kustomize 5 is installed."""
    for program, words in (("kustomize", ["build"]), ("kubectl", ["kustomize"])):
        if shutil.which(program) is not None:
            done = subprocess.run([program, *words, KUBERNETES / overlay], capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            return [each for each in yaml.safe_load_all(done.stdout) if each]
    not_here("neither kustomize nor kubectl is installed")
    raise AssertionError


def faults(document: Document) -> Iterator[str]:
    """What the schema of its kind says against it: a wrong type, a field that does not exist, one that is missing."""
    kind = f"{document.get('apiVersion')} {document.get('kind')}"
    schema = _schemas().get(kind)
    if schema is None:
        yield f"{kind}: no schema (kubernetes_schemas.json)"
        return
    for error in Draft202012Validator(schema).iter_errors(document):
        yield f"{kind} {document['metadata']['name']}: {error.json_path}: {error.message}"


@functools.cache
def _schemas() -> dict[str, Any]:
    bundle = json.loads((HERE / "kubernetes_schemas.json").read_text())
    definitions = bundle["definitions"]
    of_kubernetes = {
        kind: {"$ref": f"#/definitions/{name}", "definitions": definitions} for kind, name in bundle["roots"].items()
    }
    return of_kubernetes | {"keda.sh/v1alpha1 ScaledObject": json.loads((HERE / "keda_schema.json").read_text())}

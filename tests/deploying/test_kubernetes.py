"""The Kubernetes manifests: valid by Kubernetes' own schemas, restricted, and each role survives the loss of a node."""

import copy
from typing import Any

import pytest
from deploying import manifests
from deploying.manifests import KUBERNETES, OVERLAYS, documents, of_kind, pod, rendered

BASE = documents(*sorted((KUBERNETES / "base").glob("[!k]*.yaml")))
ROLES = ("api", "webhooks", "worker", "sweeper", "reconciler")
DEPLOYMENTS = of_kind(BASE, "Deployment")
RENDERED = pytest.mark.process


@pytest.mark.parametrize("path", manifests.MANIFESTS, ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_every_manifest_is_valid(path: Any) -> None:
    found = documents(path)
    assert found
    assert [fault for each in found for fault in manifests.faults(each)] == []


@RENDERED
@pytest.mark.quick
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_kustomize_renders_is_valid(overlay: str) -> None:
    found = rendered(overlay)
    assert [fault for each in found for fault in manifests.faults(each)] == []
    inside = [each for each in found if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in inside} == {"idem"}
    for each in (*of_kind(found, "Deployment").values(), *of_kind(found, "Job").values()):
        images = {c["image"] for c in (*pod(each)["containers"], *pod(each).get("initContainers", []))}
        assert len(images) == 1 and images != {"idem"}


@RENDERED
@pytest.mark.quick
def test_a_new_configuration_replaces_the_pods() -> None:
    found = rendered("overlays/production")
    [name] = of_kind(found, "ConfigMap")
    assert name.startswith("idem-")
    for deployment in of_kind(found, "Deployment").values():
        assert pod(deployment)["volumes"] == [{"name": "configuration", "configMap": {"name": name}}]


@RENDERED
@pytest.mark.quick
def test_with_keda_the_number_of_workers_is_kedas_alone() -> None:
    found = rendered("overlays/keda")
    [scaled] = of_kind(found, "ScaledObject").values()
    deployments = of_kind(found, "Deployment")
    assert "replicas" not in deployments.pop(scaled["spec"]["scaleTargetRef"]["name"])["spec"]
    assert scaled["spec"]["minReplicaCount"] == 2


@pytest.mark.parametrize(
    "break_it",
    [
        lambda d: d["spec"].update(replicas="two"),
        lambda d: pod(d)["containers"][0].update(comand=["idem"]),
        lambda d: pod(d)["containers"][0].pop("name"),
        lambda d: d["spec"].pop("selector"),
        lambda d: pod(d)["securityContext"].update(runAsNonRoot="yes"),
        lambda d: d.update(apiVersion="extensions/v1beta1"),
    ],
)
def test_the_schemas_find_what_is_wrong(break_it: Any) -> None:
    broken = copy.deepcopy(DEPLOYMENTS["idem-worker"])
    break_it(broken)
    assert list(manifests.faults(broken))


def test_each_role_has_two_pods_and_keeps_one() -> None:
    assert set(DEPLOYMENTS) == {f"idem-{role}" for role in ROLES}
    budgets = of_kind(BASE, "PodDisruptionBudget")
    scaled = {
        each["spec"]["scaleTargetRef"]["name"]: each for each in of_kind(BASE, "HorizontalPodAutoscaler").values()
    }
    for name, deployment in DEPLOYMENTS.items():
        spec, labels = deployment["spec"], deployment["spec"]["template"]["metadata"]["labels"]
        # One owner of the number: an apply would set back what an autoscaler has chosen.
        assert ("replicas" in spec) != (name in scaled), name
        assert (scaled[name]["spec"]["minReplicas"] if name in scaled else spec["replicas"]) == 2, name
        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0, name
        assert spec["selector"]["matchLabels"] == labels, name
        assert budgets[name]["spec"]["selector"]["matchLabels"] == labels, name
        assert budgets[name]["spec"]["minAvailable"] == 1, name
        [spread] = pod(deployment)["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == labels, name


def test_each_role_has_all_three_probes_on_the_metrics_port() -> None:
    for name, deployment in DEPLOYMENTS.items():
        [container] = pod(deployment)["containers"]
        asked = [container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")]
        assert [get["path"] for get in asked] == ["/healthz", "/healthz", "/readyz"], name
        assert {get["port"] for get in asked} == {"metrics"}, name
        # A daemon waits 30 s for a database that is down before it gives up (--wait).
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] > 30, name


def test_pods_are_restricted() -> None:
    """The Pod Security Standard `restricted`, and a root file system that nobody can write."""
    found = documents()
    for document in (*of_kind(found, "Deployment").values(), *of_kind(found, "Job").values()):
        made = pod(document)
        assert made["securityContext"]["runAsNonRoot"] is True
        assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert made["automountServiceAccountToken"] is False
        assert not any(made.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        assert {next(iter(set(volume) - {"name"})) for volume in made.get("volumes", [])} <= {"configMap"}
        for container in (*made["containers"], *made.get("initContainers", [])):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]
    [namespace] = of_kind(found, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_only_what_calls_providers_may_leave_the_cluster() -> None:
    policies = of_kind(BASE, "NetworkPolicy")
    everybody = policies["idem-all"]["spec"]
    assert everybody["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "idem"}
    assert set(everybody["policyTypes"]) == {"Ingress", "Egress"}
    assert {port["port"] for rule in everybody["egress"] for port in rule["ports"]} == {53, 5432}
    leaving = {name for name, each in policies.items() if "Egress" in each["spec"]["policyTypes"]} - {"idem-all"}
    assert leaving == {"idem-providers"}
    [choice] = policies["idem-providers"]["spec"]["podSelector"]["matchExpressions"]
    assert set(choice["values"]) == {"worker", "reconciler"}
    for role in ("api", "webhooks"):
        selected = policies[f"idem-{role}"]["spec"]["podSelector"]["matchLabels"]
        assert selected == DEPLOYMENTS[f"idem-{role}"]["spec"]["template"]["metadata"]["labels"]
    assert of_kind(BASE, "Service").keys() == {"idem-api", "idem-webhooks"}


def test_the_owner_of_the_schema_is_known_to_the_migration_alone() -> None:
    def secrets(document: dict[str, Any]) -> set[str]:
        containers = (*pod(document)["containers"], *pod(document).get("initContainers", []))
        return {source["secretRef"]["name"] for each in containers for source in each["envFrom"]}

    [job] = of_kind(documents(), "Job").values()
    assert secrets(job) == {"idem-owner"}
    assert [secrets(each) for each in DEPLOYMENTS.values()] == [{"idem"}] * len(ROLES)

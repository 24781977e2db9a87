from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from apiserver.admission.metrics import AdmissionMetrics
from apiserver.admission.policy import validating
from apiserver.admission.policy.metrics import ValidatingMetrics
from apiserver.admission.policy.plugin import PolicyDispatcher
from apiserver.admission.policy.source import Source
from apiserver.admission.policy.validating import ValidatingPolicies
from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import name_of
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places import shape
from apiserver.apis.virt.spec import service_accounts
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.admission import Attributes
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod, target_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.pods import ownership
from tests.fakes.versions import OneVersion
from tests.unit.charts import forbidden_pods
from tests.unit.charts.forbidden_pods import (
    ACCOUNT,
    CREATIONS,
    DELETIONS,
    OURS,
    POLICY,
    REFUSED_EARLIER,
    SETTINGS,
    TOLD,
    UNTOLD,
    Change,
    Pod,
    changed,
    on_a_node,
)
from tests.unit.charts.test_kubevirt import NODE, objects
from tests.unit.controller.reconcilers.builders import a_migration, a_vm
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import LOGGED, MOVE

OF_ACCOUNTS = ("another service account", "a token by projection", "a token beside a Secret by projection")
OPEN = "open"
TOKEN = a_vm(domain={"devices": {"disks": [{"type": "ServiceAccount", "source": {"name": "robot"}}]}})


class Cluster(OneVersion):
    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()

    async def get(self, name: str) -> Pod:
        labels = {"labels": {service_accounts.NAMESPACE_LABEL: "allowed"}} if name == OPEN else {}
        return {"metadata": {"name": name, **labels}}


@pytest.fixture(scope="module")
def policies() -> ValidatingPolicies:
    return policies_of(forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"))


def policies_of(chart: Sequence[dict[str, Any]]) -> ValidatingPolicies:
    cluster: Any = Cluster()
    metrics = ValidatingMetrics()
    metrics.register(Registry())
    nobody: Any = None
    source = Source(nobody, PODS, PODS, cluster, validating.compile_policy)
    for each in chart:
        if each["kind"] == "ValidatingAdmissionPolicy" and name_of(each) == POLICY:
            source._policy_changed(None, each)
        if each["kind"] == "ValidatingAdmissionPolicyBinding" and each["spec"]["policyName"] == POLICY:
            source._binding_changed(None, each)
    source.known.set()
    return ValidatingPolicies(PolicyDispatcher(source, cluster, cluster, nobody, AdmissionMetrics()), metrics)


async def refusal(policies: ValidatingPolicies, **attributes: Any) -> str:
    obj = attributes.get("obj") or attributes.get("old") or {}
    given = {"operation": "CREATE", "namespace": "default", "name": name_of(obj), "user": User(ACCOUNT, ()), **attributes}
    said = ""
    try:
        await policies.validate(Attributes(resource=PODS, warn=lambda _: None, annotate=lambda *_: None, **given))
    except StatusError as error:
        said = str(error)
    assert not said or POLICY in said
    assert "resulted in error" not in said
    return said


async def test_every_pod_that_virt_controller_makes_is_admitted(policies: ValidatingPolicies) -> None:
    assert len(forbidden_pods.examples()) >= 6
    for pod in forbidden_pods.made():
        assert await refusal(policies, obj=pod) == ""


@pytest.mark.parametrize("what", CREATIONS)
async def test_a_pod_with_one_more_power_is_refused(policies: ValidatingPolicies, what: str) -> None:
    assert await refusal(policies, obj=changed(CREATIONS[what])) != ""


async def test_token_disk_needs_the_namespaces_permission(policies: ValidatingPolicies) -> None:
    for pod in (launcher_pod(TOKEN, 1, {}, SETTINGS, Placement()), target_pod(TOKEN, a_migration(), 1, {}, SETTINGS, MOVE)):
        assert await refusal(policies, obj=pod, namespace=OPEN) == ""
        assert "service-account-disks=allowed" in await refusal(policies, obj=pod)
        pod["spec"].pop("serviceAccountName")
        assert "service-account-disks=allowed" in await refusal(policies, obj=pod)


@pytest.mark.parametrize("what", [each for each in CREATIONS if each not in OF_ACCOUNTS])
async def test_where_tokens_are_allowed_no_other_power_is(policies: ValidatingPolicies, what: str) -> None:
    assert await refusal(policies, obj=changed(CREATIONS[what]), namespace=OPEN) != ""


@pytest.mark.parametrize("change", REFUSED_EARLIER.values(), ids=REFUSED_EARLIER)
async def test_pods_that_kube_apiserver_refuses_are_refused_too(policies: ValidatingPolicies, change: Change) -> None:
    assert await refusal(policies, obj=changed(change)) != ""


@pytest.mark.parametrize("change", OURS.values(), ids=OURS)
async def test_our_pods_can_be_deleted_whatever_was_done_to_them(policies: ValidatingPolicies, change: Change) -> None:
    assert await refusal(policies, obj=None, old=changed(change), operation="DELETE") == ""


@pytest.mark.parametrize("change", DELETIONS.values(), ids=DELETIONS)
async def test_pods_of_others_cannot_be_deleted(policies: ValidatingPolicies, change: Change) -> None:
    assert "only launcher pods" in await refusal(policies, obj=None, old=changed(change), operation="DELETE")


@pytest.mark.parametrize(
    ("operation", "subresource"),
    [
        ("UPDATE", ""),
        ("UPDATE", "ephemeralcontainers"),
        ("CREATE", "status"),
        ("DELETE", "status"),
        ("CREATE", "binding"),
        ("CREATE", "eviction"),
        ("CONNECT", "exec"),
    ],
)
async def test_other_pod_operations_are_refused_under_any_rbac(policies: ValidatingPolicies, operation: str, subresource: str) -> None:
    pod = changed(OURS["as it was made"])
    assert "may only create and delete" in await refusal(policies, obj=pod, old=pod, operation=operation, subresource=subresource)


async def test_eviction_strategy_allows_evicting_launcher_pods_only() -> None:
    evicting = policies_of(objects(NODE, "workloadUpdate.strategy=Evict"))
    eviction = {"kind": "Eviction", "metadata": {"name": "virt-launcher-testvm-abcde", "namespace": "default"}}
    assert await refusal(evicting, obj=eviction, operation="CREATE", subresource="eviction") == ""
    other = {**eviction, "metadata": {"name": "kubevirt-etcd-0", "namespace": "default"}}
    assert "may only create and delete" in await refusal(evicting, obj=other, operation="CREATE", subresource="eviction")
    pod = changed(OURS["as it was made"])
    assert "may only create and delete" in await refusal(evicting, obj=pod, old=pod, operation="CREATE", subresource="binding")
    assert await refusal(evicting, obj=pod) == ""


async def said(policies: ValidatingPolicies, change: Change, pod: Pod | None = None) -> str:
    old = pod if pod is not None else changed(on_a_node)
    return await refusal(policies, obj=changed(change, old), old=old, operation="UPDATE", subresource="status")


@pytest.mark.parametrize("change", TOLD.values(), ids=TOLD)
async def test_whether_the_guest_runs_may_be_told_in_the_pods_status(policies: ValidatingPolicies, change: Change) -> None:
    assert await said(policies, change) == ""
    assert await said(policies, change, changed(TOLD["that the guest runs"], changed(on_a_node))) == ""


async def test_readiness_is_written_to_a_pod_without_status(policies: ValidatingPolicies) -> None:
    pod = changed(lambda pod: pod.update(status={}))
    written = {**pod, "status": {"conditions": [{"type": "kubevirt.io/guest-running", "status": "True"}]}}
    assert await refusal(policies, obj=written, old=pod, operation="UPDATE", subresource="status") == ""


@pytest.mark.parametrize("change", UNTOLD.values(), ids=UNTOLD)
async def test_nothing_else_is_told_there(policies: ValidatingPolicies, change: Change) -> None:
    assert "may write only the condition kubevirt.io/guest-running" in await said(policies, change)


@pytest.mark.parametrize("change", DELETIONS.values(), ids=DELETIONS)
async def test_nothing_is_told_in_pods_of_others(policies: ValidatingPolicies, change: Change) -> None:
    pod = changed(on_a_node)
    change(pod)
    assert "only of launcher pods with the readiness gate" in await said(policies, TOLD["that the guest runs"], pod)


async def test_nothing_is_told_in_a_pod_without_the_gate(policies: ValidatingPolicies) -> None:
    for gates in ([], [{"conditionType": "example.com/load-balancer"}]):
        pod = changed(on_a_node)
        pod["spec"]["readinessGates"] = gates
        assert "only of launcher pods with the readiness gate" in await said(policies, TOLD["that the guest runs"], pod)


def memory(amount: str) -> Change:
    return lambda pod: [pod["spec"]["containers"][0]["resources"][each].update(memory=amount) for each in ("requests", "limits")]


def processors(which: str) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["resources"][which].update(cpu="7")


async def resize(policies: ValidatingPolicies, change: Change, pod: Pod) -> str:
    return await refusal(policies, obj=changed(change, pod), old=pod, operation="UPDATE", subresource="resize")


async def test_only_the_memory_of_launcher_pods_is_resized(policies: ValidatingPolicies) -> None:
    pod = changed(on_a_node)
    assert await resize(policies, memory("3Gi"), pod) == ""
    for which in ("requests", "limits"):
        assert "only the memory" in await resize(policies, processors(which), pod)
    logged = changed(on_a_node, launcher_pod(LOGGED, 1, {}, SETTINGS, Placement()))
    assert await resize(policies, memory("3Gi"), logged) == ""
    others: tuple[Change, ...] = (
        lambda pod: pod["spec"]["initContainers"][0].update(resources={"limits": {"memory": "9Gi"}}),
        lambda pod: pod["spec"].update(resources={"limits": {"memory": "9Gi"}}),
    )
    for change in others:
        assert "only the memory" in await resize(policies, change, logged)
    for change in DELETIONS.values():
        assert "resize only launcher pods" in await resize(policies, memory("3Gi"), changed(change, pod))


async def test_pods_of_other_users_are_not_judged(policies: ValidatingPolicies) -> None:
    for who in ("system:serviceaccount:other:virt-controller", "system:serviceaccount:kubevirt:virt-controller2", "alice"):
        assert await refusal(policies, obj=changed(CREATIONS["privileged"]), user=User(who, ())) == ""


def expressions() -> list[str]:
    (policy,) = (each for each in objects(NODE) if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == POLICY)
    spec = policy["spec"]
    return [" ".join(each["expression"].split()) for each in (*spec["variables"], *spec["validations"])]


def test_policy_contains_the_launcher_pod_shape_verbatim() -> None:
    assert f"(variables.deletes || variables.tells || variables.resizes) && {shape.expression('oldObject')}" in expressions()
    (of_volumes,) = (each for each in expressions() if "each.emptyDir" in each)
    assert set(re.findall(r"has\(each\.(\w+)\)", of_volumes)) == set(shape.VOLUMES)
    assert set(re.findall(r"has\(source\.(\w+)\)", of_volumes)) == set(shape.PROJECTED)


def test_no_machine_gets_a_pod_with_other_volumes() -> None:
    for pod in forbidden_pods.made():
        for volume in pod["spec"].get("volumes", ()):
            assert volume.keys() - {"name"} <= set(shape.VOLUMES)
            assert all(each.keys() <= set(shape.PROJECTED) for each in volume.get("projected", {}).get("sources", ()))


def test_counted_launcher_pods_are_exactly_the_deletable_ones() -> None:
    """A counted pod that cannot be deleted would block its VM forever; an uncounted one could be a second QEMU."""
    assert all(ownership.is_launcher(pod) for pod in forbidden_pods.made())
    assert all(ownership.is_launcher(changed(change)) for change in OURS.values())
    assert not any(ownership.is_launcher(changed(change)) for change in DELETIONS.values())

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from controller.reconcilers.pods import leftovers
from tests.unit.controller.reconcilers.copied import COPIED
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import (
    DEDICATED,
    DISKS,
    FILESYSTEMS,
    FIRST_BOOT,
    HOST,
    HOST_DISKS,
    IMPORTED,
    LESS,
    LOGGED,
    MACVTAP,
    NETWORK_DISKS,
    NETWORKS,
    PAGES,
    PASST,
    PLACED,
    PLUGIN_DISKS,
    PODS,
    PROCESSOR,
    SHARES,
    TINY,
    TOKEN,
    UEFI,
    VSOCK,
)

Change = Callable[[dict[str, Any]], Any]
VMS = {
    "copied": COPIED,
    "filesystems": FILESYSTEMS,
    "vsock": VSOCK,
    "hugepages": PAGES,
    "shares": SHARES,
    "dedicated": DEDICATED,
    "tiny": TINY,
    "network-disks": NETWORK_DISKS,
    "plugin-disks": PLUGIN_DISKS,
    "host-disks": HOST_DISKS,
    "macvtap": MACVTAP,
    "networks": NETWORKS,
    "passt": PASST,
    "disks": DISKS,
    "first-boot": FIRST_BOOT,
    "imported": IMPORTED,
    "logged-console": LOGGED,
    "service-account": TOKEN,
    "placed": PLACED,
    "target": PLACED,
    "persistent-uefi-and-tpm": UEFI,
    "processor": PROCESSOR,
    "processor-with-less": LESS,
    "processor-of-the-node": HOST,
}


def as_served(pod: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(pod)
    found["metadata"] |= {"uid": "u", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    spec = found["spec"]
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName", "default")
    spec |= {"dnsPolicy": "ClusterFirst", "serviceAccountName": account, "serviceAccount": account, "nodeName": "node1", "priority": 0}
    spec["preemptionPolicy"] = "PreemptLowerPriority"
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    spec["tolerations"] = [*spec.get("tolerations", []), unreachable]
    for container in spec["containers"]:
        container |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
        for kind in ("requests", "limits"):
            amounts = container["resources"][kind]
            amounts["memory"] = f"{int(amounts['memory'].removesuffix('Mi')) * 1024}Ki"
    for volume in spec["volumes"]:
        if "image" in volume:
            volume["image"].setdefault("pullPolicy", "IfNotPresent")
    found["status"] = {"phase": "Pending"}
    return found


@pytest.mark.parametrize("name", PODS)
def test_our_pod_as_served_is_recognized_as_ours(name: str) -> None:
    assert leftovers.objection(as_served(PODS[name]), PODS[name], VMS[name]) == ""


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


FORGED: dict[str, Change] = {
    "spec.containers[].image": lambda pod: container(pod).update(image="registry.example/evil:v1"),
    "spec.containers[].command": lambda pod: container(pod).update(command=["sh"]),
    "spec.containers[].args": lambda pod: container(pod).update(args=["-x"]),
    "spec.containers[].env": lambda pod: container(pod).update(env=[{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]),
    "spec.containers[].lifecycle": lambda pod: container(pod).update(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}),
    "spec.containers[].terminationMessagePath": lambda pod: container(pod).update(terminationMessagePath="/tmp/x"),
    "spec.containers[].securityContext.capabilities.drop": lambda pod: container(pod)["securityContext"]["capabilities"].pop("drop"),
    "spec.containers[].securityContext.privileged": lambda pod: container(pod)["securityContext"].update(privileged=True),
    "spec.containers[].resources.limits.cpu": lambda pod: container(pod)["resources"]["limits"].update(cpu="64"),
    "spec.containers[].volumeMounts": lambda pod: container(pod)["volumeMounts"].append({"name": "tmp", "mountPath": "/usr"}),
    "spec.containers": lambda pod: pod["spec"]["containers"].append({"name": "spy", "image": "registry.example/spy"}),
    "spec.initContainers": lambda pod: pod["spec"].update(initContainers=[{"name": "first", "image": "registry.example/spy"}]),
    "spec.ephemeralContainers": lambda pod: pod["spec"].update(ephemeralContainers=[{"name": "spy"}]),
    "spec.volumes": lambda pod: pod["spec"]["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    "spec.volumes[].emptyDir": lambda pod: pod["spec"]["volumes"].__setitem__(0, {"name": "run", "hostPath": {"path": "/"}}),
    "spec.hostNetwork": lambda pod: pod["spec"].update(hostNetwork=True),
    "spec.shareProcessNamespace": lambda pod: pod["spec"].update(shareProcessNamespace=True),
    "spec.serviceAccountName": lambda pod: pod["spec"].update(serviceAccountName="admin"),
    "spec.dnsPolicy": lambda pod: pod["spec"].update(dnsPolicy="Default"),
    "spec.schedulerName": lambda pod: pod["spec"].update(schedulerName="theirs"),
    "spec.securityContext.runAsUser": lambda pod: pod["spec"]["securityContext"].update(runAsUser=0),
    "spec.securityContext.runAsNonRoot": lambda pod: pod["spec"]["securityContext"].update(runAsNonRoot=1),
    "spec.schedulingGates": lambda pod: pod["spec"].update(schedulingGates=[{"name": "never"}]),
    "spec.terminationGracePeriodSeconds": lambda pod: pod["spec"].update(terminationGracePeriodSeconds=0),
    "metadata.labels[kubevirt.io]": lambda pod: pod["metadata"]["labels"].pop("kubevirt.io"),
    "metadata.labels[kubevirt.io/migration-uid]": lambda pod: pod["metadata"]["labels"].update({"kubevirt.io/migration-uid": "m"}),
    "metadata.annotations[kubevirt.io/attempt]": lambda pod: pod["metadata"].pop("annotations"),
}  # fmt: skip


@pytest.mark.parametrize("where", FORGED)
def test_single_difference_is_named(where: str) -> None:
    found = as_served(PODS["tiny"])
    FORGED[where](found)
    assert leftovers.objection(found, PODS["tiny"], TINY) == f"{where} differs"


def test_downward_api_annotations_must_be_ours() -> None:
    found = as_served(PODS["first-boot"])
    found["metadata"]["annotations"]["kubevirt.io/downward-api-1"] = "primary"
    assert leftovers.objection(found, PODS["first-boot"], FIRST_BOOT) == "metadata.annotations[kubevirt.io/downward-api-1] differs"


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["spec"]["tolerations"][0].update(effect="NoExecute"),
        lambda pod: pod["spec"]["tolerations"].reverse(),
        lambda pod: pod["spec"].update(tolerations=[]),
    ],
    ids=["narrower", "behind admission's", "none"],
)
def test_admission_tolerations_follow_ours_and_replace_none(change: Change) -> None:
    found = as_served(PODS["placed"])
    change(found)
    assert leftovers.objection(found, PODS["placed"], VMS["placed"]).startswith("spec.tolerations")


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: container(pod)["volumeMounts"][0].update(mountPath="/elsewhere"),
        lambda pod: pod["spec"].update(automountServiceAccountToken=True),
        lambda pod: pod["spec"].update(restartPolicy="Always"),
    ],
)
def test_a_pod_without_the_shape_of_ours_is_not_ours(change: Change) -> None:
    found = as_served(PODS["tiny"])
    change(found)
    assert leftovers.objection(found, PODS["tiny"], TINY) == "it is not a launcher pod"


def test_a_pod_of_another_controller_is_not_ours_however_alike() -> None:
    for references in ([], [{**PODS["tiny"]["metadata"]["ownerReferences"][0], "uid": "another"}]):
        found = as_served(PODS["tiny"])
        found["metadata"]["ownerReferences"] = references
        assert leftovers.objection(found, PODS["tiny"], TINY) == "its controller is not this virtual machine"


def test_a_pod_that_is_over_or_going_is_no_start() -> None:
    found = as_served(PODS["tiny"])
    found["status"] = {"phase": "Succeeded"}
    assert leftovers.objection(found, PODS["tiny"], TINY) == "it has ended"
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert leftovers.objection(found, PODS["tiny"], TINY) == "it is being deleted"


def test_amounts_are_compared_as_amounts_and_garbage_is_none() -> None:
    found = as_served(PODS["tiny"])
    container(found)["resources"]["limits"]["memory"] = "lots"
    assert leftovers.objection(found, PODS["tiny"], TINY) == "spec.containers[].resources.limits.memory differs"

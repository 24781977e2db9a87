"""Pods that virt-controller's account must not create or delete, one feature at a time, for the chart's policy.

Our own CEL evaluates them in ``test_pod_policy.py``, kube-apiserver in ``tests/component/controller/test_pod_policy.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec.described import domain_of
from controller.reconcilers.launcher_pods.launcher_pod import attachment_pod, launcher_pod, removal_pod, target_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.settings import Settings
from tests.fakes import chart
from tests.unit.controller.reconcilers.builders import a_migration, a_vm
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import (
    CLAIMS,
    DISKS,
    FIRST_BOOT,
    LOGGED,
    MOVE,
    PLACED,
    TINY,
)

Pod = dict[str, Any]
Change = Callable[[Pod], Any]

ROOT: Final = Path(__file__).parents[3]
POLICY: Final = "virt-controller-pods.kubevirt.io"
ACCOUNT: Final = "system:serviceaccount:kubevirt:virt-controller"
SETTINGS: Final = Settings("localhost/kubevirt/virt-launcher:dev", image_pull_secrets=("regcred",))


@cache
def _rendered() -> list[dict[str, Any]]:
    return chart.objects()


def of_the_chart(*kinds: str) -> list[dict[str, Any]]:
    return [each for each in _rendered() if each["kind"] in kinds]


def examples() -> list[dict[str, Any]]:
    found = []
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        found += [each for each in yaml.safe_load_all(path.read_text()) if each and each.get("kind") == "VirtualMachine"]
    for number, vm in enumerate(found):
        vm["metadata"] |= {"namespace": "default", "uid": f"6b0a1c1e-0000-4000-8000-00000000010{number}"}
    labelled = a_vm()
    labelled["metadata"]["labels"] = {"app": "db", names.COMPONENT_LABEL: "somebody-else"}
    return [*found, TINY, DISKS, FIRST_BOOT, PLACED, LOGGED, labelled]


def made() -> list[Pod]:
    placements = (Placement(), Placement(kvm=True, avoid_nodes=("node1",)))
    claims = (CLAIMS, {"myvolumeclaim": {"spec": {"volumeMode": "Block"}}})
    starts = [launcher_pod(vm, 3, each, SETTINGS, where) for vm in examples() for each in claims for where in placements]
    removals = [removal_pod(vm, "memory", SETTINGS) for vm in examples()]
    guests = [{**vm, "status": {**(vm.get("status") or {}), "nodeName": "node1"}} for vm in examples()]
    claimed = [(vm, disk) for vm in guests for disk in disks.defaulted(domain_of(vm)) if disks.claim_of(disk)]
    attachments = [attachment_pod(*each, SETTINGS, is_block=is_block) for each in claimed for is_block in (False, True)]
    return [*starts, *removals, *attachments, *(target_pod(vm, a_migration(), 1, CLAIMS, SETTINGS, MOVE) for vm in examples())]


def _container(pod: Pod) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def _owner(pod: Pod) -> dict[str, Any]:
    found: dict[str, Any] = pod["metadata"]["ownerReferences"][0]
    return found


def _with(**fields: Any) -> Change:
    return lambda pod: pod["spec"].update(fields)


def _container_with(**fields: Any) -> Change:
    return lambda pod: _container(pod).update(fields)


def _confined(**fields: Any) -> Change:
    return lambda pod: _container(pod)["securityContext"].update(fields)


def _pod_confined(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["securityContext"].update(fields)


def _volume(**source: Any) -> Change:
    return lambda pod: pod["spec"]["volumes"].append({"name": "more", **source})


def _mounted(path: str, **source: Any) -> Change:
    def change(pod: Pod) -> None:
        _volume(**source)(pod)
        _container(pod)["volumeMounts"].append({"name": "more", "mountPath": path})

    return change


def _instead_of(path: str, **source: Any) -> Change:
    """Return a change that mounts an added volume at ``path``, in place of the launcher pod's emptyDir."""

    def change(pod: Pod) -> None:
        for mount in _container(pod)["volumeMounts"]:
            if mount["mountPath"] == path:
                mount["name"] = "more"
        _volume(**source)(pod)

    return change


def _device(path: str) -> Change:
    def change(pod: Pod) -> None:
        _volume(persistentVolumeClaim={"claimName": "c"})(pod)
        _container(pod)["volumeDevices"] = [{"name": "more", "devicePath": path}]

    return change


_FOREIGN: Final = {"reference": "registry.example/evil:v1"}
_PROBE: Final = {"exec": {"command": ["sh", "-c", "id"]}}


def _token_by_projection(pod: Pod) -> None:
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    pod["spec"]["serviceAccountName"] = "default"
    pod["spec"]["volumes"].append({"name": "more", "projected": {"sources": [token]}})


def _token_beside_a_secret(pod: Pod) -> None:
    _token_by_projection(pod)
    pod["spec"]["volumes"][-1]["projected"]["sources"].insert(0, {"secret": {"name": "s"}})


_CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_BESIDE: Final = {
    "name": "beside",
    "image": SETTINGS.launcher_image,
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}

_LOGGER: Final = launcher_pod(LOGGED, 3, {}, SETTINGS, Placement())["spec"]["initContainers"][0]


def _logger_with(**fields: Any) -> Change:
    return _with(initContainers=[{key: value for key, value in {**_LOGGER, **fields}.items() if value is not None}])


def _logger_and_claim(**fields: Any) -> Change:
    def change(pod: Pod) -> None:
        _volume(persistentVolumeClaim={"claimName": "c"})(pod)
        _logger_with(**fields)(pod)

    return change


CREATIONS: Final = MappingProxyType[str, Change](
    {
        "another name": lambda pod: pod["metadata"].update(name="debug"),
        "no owner": lambda pod: pod["metadata"].pop("ownerReferences"),
        "an owner that is no machine": lambda pod: _owner(pod).update(apiVersion="apps/v1", kind="ReplicaSet"),
        "an owner of another group": lambda pod: _owner(pod).update(apiVersion="example.com/v1"),
        "an owner that is no controller": lambda pod: _owner(pod).update(controller=False),
        "a second owner": lambda pod: pod["metadata"]["ownerReferences"].append({**_owner(pod), "uid": "other", "controller": False}),
        "no labels": lambda pod: pod["metadata"].pop("labels"),
        "another component": lambda pod: pod["metadata"]["labels"].update({names.COMPONENT_LABEL: "virt-api"}),
        "the uid of another machine": lambda pod: pod["metadata"]["labels"].update({names.CREATED_BY_LABEL: "other"}),
        "the name of another machine": lambda pod: pod["metadata"]["labels"].update({names.VM_NAME_LABEL: "other"}),
        "hostNetwork": _with(hostNetwork=True),
        "hostPID": _with(hostPID=True),
        "hostIPC": _with(hostIPC=True),
        "shareProcessNamespace": _with(shareProcessNamespace=True),
        "another service account": _with(serviceAccountName="cluster-admin"),
        "a service account's token": _with(automountServiceAccountToken=True),
        "a token by default": lambda pod: pod["spec"].pop("automountServiceAccountToken"),
        "restarts": _with(restartPolicy="Always"),
        "a container beside it": lambda pod: pod["spec"]["containers"].append(_BESIDE),
        "a container before it": _with(initContainers=[_BESIDE]),
        "a second container that logs": _with(initContainers=[_LOGGER, {**_LOGGER, "name": "more"}]),
        "another name of the container that logs": _logger_with(name="shell"),
        "another command of the container that logs": _logger_with(command=["/bin/sh", "-c", "id"]),
        "no command of the container that logs": _logger_with(command=None),
        "arguments of the container that logs": _logger_with(args=["id"]),
        "environment of the container that logs": _logger_with(env=[{"name": "BASH_ENV", "value": "/x"}]),
        "another image of the container that logs": _logger_with(image="registry.example/evil:v1"),
        "a container that logs and ends": _logger_with(restartPolicy=None),
        "a hook of the container that logs": _logger_with(lifecycle={"postStart": _PROBE}),
        "privileges of the container that logs": _logger_with(securityContext={"privileged": True}),
        "no container security of the container that logs": _logger_with(securityContext=None),
        "a device of the container that logs": _logger_and_claim(volumeDevices=[{"name": "more", "devicePath": "/dev/kubevirt-disks/x"}]),
        "a disk of the container that logs": _logger_and_claim(volumeMounts=[{"name": "more", "mountPath": "/var/lib/kubevirt/disks/x"}]),
        "another image": _container_with(image="registry.example/evil:v1"),
        "another tag": _container_with(image=f"{SETTINGS.launcher_image}-evil"),
        "another container": _container_with(name="shell"),
        "a command": _container_with(command=["sh"]),
        "arguments": _container_with(args=["-c", "id"]),
        "environment": _container_with(env=[{"name": "LD_PRELOAD", "value": "/x.so"}]),
        "a Secret as environment": _container_with(env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        "all of a Secret as environment": _container_with(envFrom=[{"secretRef": {"name": "s"}}]),
        "a hook": _container_with(lifecycle={"postStart": _PROBE}),
        "a liveness probe": _container_with(livenessProbe=_PROBE),
        "a readiness probe": _container_with(readinessProbe=_PROBE),
        "a startup probe": _container_with(startupProbe=_PROBE),
        "a port of the host": _container_with(ports=[{"containerPort": 22, "hostPort": 22}]),
        "an address of the host": _container_with(ports=[{"containerPort": 22, "hostIP": "127.0.0.1"}]),
        "another directory": _container_with(workingDir="/proc"),
        "root": _pod_confined(runAsUser=0, runAsNonRoot=False),
        "root's group": _pod_confined(runAsGroup=0),
        "volumes of root's group": _pod_confined(fsGroup=0),
        "further groups": _pod_confined(supplementalGroups=[0]),
        "perhaps root": lambda pod: pod["spec"]["securityContext"].pop("runAsNonRoot"),
        "no user": lambda pod: pod["spec"]["securityContext"].pop("runAsUser"),
        "no pod security": lambda pod: pod["spec"].pop("securityContext"),
        "no seccomp": _pod_confined(seccompProfile={"type": "Unconfined"}),
        "no AppArmor": _pod_confined(appArmorProfile={"type": "Unconfined"}),
        "another SELinux type": _pod_confined(seLinuxOptions={"type": "spc_t"}),
        "sysctls": _pod_confined(sysctls=[{"name": "kernel.shm_rmid_forced", "value": "0"}]),
        "privileged": _confined(privileged=True, allowPrivilegeEscalation=True),
        "privilege escalation": _confined(allowPrivilegeEscalation=True),
        "escalation by default": lambda pod: _container(pod)["securityContext"].pop("allowPrivilegeEscalation"),
        "capabilities": _confined(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        "capabilities by default": lambda pod: _container(pod)["securityContext"].pop("capabilities"),
        "fewer capabilities": _confined(capabilities={"drop": ["NET_RAW"]}),
        "root in the container": _confined(runAsUser=0, runAsNonRoot=False),
        "root's group in the container": _confined(runAsGroup=0),
        "no seccomp in the container": _confined(seccompProfile={"type": "Unconfined"}),
        "no AppArmor in the container": _confined(appArmorProfile={"type": "Unconfined"}),
        "another SELinux type in the container": _confined(seLinuxOptions={"type": "spc_t"}),
        "no container security": lambda pod: _container(pod).pop("securityContext"),
        "the host's files": _volume(hostPath={"path": "/"}),
        "a Secret": _volume(secret={"secretName": "s"}),
        "a ConfigMap": _volume(configMap={"name": "c"}),
        "a token by projection": _token_by_projection,
        "a token beside a Secret by projection": _token_beside_a_secret,
        "the pod's own fields by projection": _volume(
            projected={"sources": [{"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}
        ),
        "a label of the pod by projection": _volume(
            projected={"sources": [{"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}}]}
        ),
        "the pod's own fields": _volume(downwardAPI={"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}),
        "NFS": _volume(nfs={"server": "10.0.0.1", "path": "/"}),
        "an ephemeral claim": _volume(ephemeral={"volumeClaimTemplate": {"spec": _CLAIM}}),
        "a CSI volume": _volume(csi={"driver": "secrets-store.csi.k8s.io"}),
        "an image over the program": _mounted("/usr/local/lib/python3.13/dist-packages", image=_FOREIGN),
        "a ConfigMap over the program": _mounted(
            "/usr/local/lib/python3.13/dist-packages/launcher", projected={"sources": [{"configMap": {"name": "c"}}]}
        ),
        "a claim over the system's programs": _mounted("/usr/bin", persistentVolumeClaim={"claimName": "c"}),
        "an image over the program by way of the disks": _mounted("/var/lib/kubevirt/disks/../../../../usr/bin", image=_FOREIGN),
        "an image with libvirtd's configuration": _instead_of("/run/kubevirt", image=_FOREIGN),
        "a claim with libvirtd's configuration": _mounted("/run/kubevirt/config", persistentVolumeClaim={"claimName": "c"}),
        "a device over the program": _device("/usr/local/bin/virt-launcher"),
        "claimed devices": _with(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
    }
)

REFUSED_EARLIER: Final = MappingProxyType[str, Change](
    {
        "an ephemeral container": _with(ephemeralContainers=[_BESIDE]),
        "Windows' confinement": _pod_confined(windowsOptions={"hostProcess": True}),
        "Windows' confinement of the container": _confined(windowsOptions={"hostProcess": True}),
        "all of /proc": _confined(procMount="Unmasked"),
    }
)
"""The same, for changes that kube-apiserver refuses or drops before it evaluates policies. Its next version may not."""


def _of_a_person(pod: Pod) -> None:
    for mount in _container(pod)["volumeMounts"]:
        mount["mountPath"] = mount["mountPath"].replace("/run/kubevirt", "/srv")


DELETIONS: Final = MappingProxyType[str, Change](
    {
        "another name": lambda pod: pod["metadata"].update(name="database-0"),
        "another container": _container_with(name="postgres"),
        "without our sockets": _of_a_person,
        "restarts": _with(restartPolicy="Always"),
        "a token": _with(automountServiceAccountToken=True),
    }
)
"""Each change alone makes deleting a pod forbidden."""

OURS: Final = MappingProxyType[str, Change](
    {
        "as it was made": lambda _: None,
        "without labels": lambda pod: pod["metadata"].pop("labels"),
        "without its owner": lambda pod: pod["metadata"].pop("ownerReferences"),
        "with another image": _container_with(image="registry.example/virt-launcher:earlier"),
        "of a version without these": lambda pod: _container(pod)["securityContext"].pop("capabilities"),
    }
)
"""Pods that may be deleted after these changes, because other users and components may make them."""


_GATE: Final = {"type": names.GUEST_RUNNING_GATE, "status": "True", "reason": "GuestRunning", "message": "", "lastTransitionTime": None}


def on_a_node(pod: Pod) -> None:
    pod["metadata"] |= {"annotations": {"a": "b"}, "finalizers": ["example.com/f"]}
    pod["status"] = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "example.com/load-balancer", "status": "False"}],
        "containerStatuses": [],
    }


def _says(pod: Pod) -> None:
    pod["status"]["conditions"] = [each for each in pod["status"]["conditions"] if each["type"] != _GATE["type"]] + [_GATE]


def _says_and(change: Change) -> Change:
    def both(pod: Pod) -> None:
        _says(pod)
        change(pod)

    return both


TOLD: Final = MappingProxyType[str, Change](
    {
        "that the guest runs": _says,
        "that it does not": _says_and(lambda pod: pod["status"]["conditions"][-1].update(status="False")),
        "nothing": lambda _: None,
    }
)
"""Allowed writes to the status of a launcher pod with the gate."""

UNTOLD: Final = MappingProxyType[str, Change](
    {
        "that it is ready": _says_and(lambda pod: pod["status"]["conditions"][0].update(status="True")),
        "what another gate waits for": _says_and(lambda pod: pod["status"]["conditions"][1].update(status="True")),
        "one condition more": _says_and(lambda pod: pod["status"]["conditions"].append({"type": "example.com/x", "status": "True"})),
        "one condition less": _says_and(lambda pod: pod["status"]["conditions"].pop(0)),
        "another address": _says_and(lambda pod: pod["status"].update(podIP="10.0.0.2")),
        "a further address": _says_and(lambda pod: pod["status"].update(podIPs=[{"ip": "10.0.0.2"}])),
        "its end": _says_and(lambda pod: pod["status"].update(phase="Failed")),
        "no address": _says_and(lambda pod: pod["status"].pop("podIP")),
        "another label": _says_and(lambda pod: pod["metadata"]["labels"].update(app="db")),
        "another annotation": _says_and(lambda pod: pod["metadata"]["annotations"].update(a="c")),
        "no finalizers": _says_and(lambda pod: pod["metadata"].pop("finalizers")),
        "no owner": _says_and(lambda pod: pod["metadata"].pop("ownerReferences")),
        "another image": _says_and(_container_with(image="registry.example/evil:v1")),
    }
)
"""Each change alone makes the write forbidden."""


def changed(change: Change, pod: Pod | None = None) -> Pod:
    found = copy.deepcopy(pod if pod is not None else launcher_pod(TINY, 1, {}, SETTINGS, Placement()))
    change(found)
    return found

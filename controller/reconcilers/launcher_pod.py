"""The pod of a virtual machine: a pure function of the machine, its claims and the settings.

Everything in it passes Pod Security ``restricted``: what needs privilege (tap devices, the owner of block devices and of /dev/kvm) is
done by virt-handler from outside. ``tests/golden/pods`` holds examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.objects import Object, dig, labels_of, name_of, namespace_of, owner_reference, uid_of
from apiserver.apis.virt import hardware, layout, names
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from controller.reconcilers import disks
from controller.reconcilers.settings import Settings

MIB: Final = 1 << 20
LAUNCHER_BYTES: Final = 80 * MIB
"""virt-launcher and libvirtd: 60 MiB measured, and room for a migration's second connection."""
QEMU_BYTES: Final = 110 * MIB
"""QEMU without its guest's memory: 106 MiB measured, of which 32 MiB translation cache (kvm does without, and is given it all the same)."""
VCPU_BYTES: Final = 8 * MIB
"""A thread's stack and libvirt's and QEMU's books about it."""
GRAPHICS_BYTES: Final = 32 * MIB
"""16 MiB of video memory, and as much for a VNC client's view of it."""
PAGE_TABLE_SHARE: Final = 512
"""Eight bytes of page table map a page of 4096."""
CPU_REQUEST_MILLI: Final = 100
"""Requested per vcpu: guests are idle most of the time; the limit is what they may use."""
LOG_BYTES: Final = 128 * MIB
"""virt-launcher's log on the node's disk: kubelets keep 50 MiB by default, and look every ten seconds whether it is more."""
OVERLAY_SHARE: Final = 4096
OVERLAY_BYTES: Final = 2 * MIB
"""Bytes of a qcow2 file beyond its disk: tables of 10 bytes for each 64 KiB (and ours is counted generously), a header, a directory."""
GRACE_MARGIN_SECONDS: Final = 15
"""Beyond the machine's own grace period: for virt-launcher to power the guest off (it gives up 8 s after the deadline) and end."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_PASSED_ON: Final = ("tolerations", "topologySpreadConstraints", "priorityClassName", "schedulerName")
_RESERVED: Final = (names.COMPONENT_LABEL, names.VM_NAME_LABEL, names.CREATED_BY_LABEL, names.MIGRATION_LABEL)


@dataclass(frozen=True, slots=True)
class Placement:
    """The wishes of the decision for a node, beside the machine's own."""

    kvm: bool = False
    avoid_nodes: tuple[str, ...] = ()
    """Start attempts failed there: another node is preferred."""
    not_on_node: str = ""
    """Never there: the source of a migration."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Of a Migration; it wins over the machine's."""


def launcher_pod(vm: Object, attempt: int, claims: Mapping[str, Object | None], settings: Settings, placement: Placement) -> Object:
    """Return the pod of a start attempt."""
    name = names.launcher_pod_name(name_of(vm), uid_of(vm), attempt)
    return _pod(vm, name, {}, attempt, claims, settings, placement)


def target_pod(
    vm: Object, migration: Object, attempt: int, claims: Mapping[str, Object | None], settings: Settings, placement: Placement
) -> Object:
    """Return the pod that a running machine migrates into; it belongs to the same attempt."""
    name = names.target_pod_name(name_of(vm), uid_of(migration))
    return _pod(vm, name, {names.MIGRATION_LABEL: uid_of(migration)}, attempt, claims, settings, placement)


def memory_overhead(vm: Object) -> int:
    """Return the bytes that the pod needs beyond the guest's memory: an upper bound of what is used, since QEMU killed is a guest lost."""
    domain = _domain(vm)
    total = LAUNCHER_BYTES + QEMU_BYTES + VCPU_BYTES * hardware.vcpus(domain) + hardware.memory_bytes(domain) // PAGE_TABLE_SHARE
    total += sum(volume.size for volume in layout.IN_MEMORY)
    return total + (GRAPHICS_BYTES if hardware.graphics(domain) else 0)


def overlays_size(vm: Object) -> int:
    """Return the bytes that the overlays of the machine's image disks can take; virt-launcher starts no guest with larger disks."""
    limits = [hardware.overlay_bytes(each) for each in disks.disks_of(vm) if hardware.is_overlaid(each)]
    return sum(limit + limit // OVERLAY_SHARE + OVERLAY_BYTES for limit in limits)


def _domain(vm: Object) -> Object:
    return dig(vm, "spec", "domain") or {}


def _pod(
    vm: Object,
    name: str,
    labels: Mapping[str, str],
    attempt: int,
    claims: Mapping[str, Object | None],
    settings: Settings,
    placement: Placement,
) -> Object:
    own = {names.COMPONENT_LABEL: names.LAUNCHER, names.VM_NAME_LABEL: name_of(vm), names.CREATED_BY_LABEL: uid_of(vm)}
    users = {key: value for key, value in labels_of(vm).items() if key not in _RESERVED}  # so that Services can select the machine
    volumes, mounts, devices = _storage(vm, claims)
    container: Object = {
        "name": names.CONTAINER,
        "image": settings.launcher_image,
        "imagePullPolicy": settings.launcher_pull_policy,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
        "resources": _resources(vm, placement),
        "volumeMounts": mounts,
    }
    if devices:
        container["volumeDevices"] = devices
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(vm),
        "securityContext": _security_context(vm, claims),
        **_scheduling(vm, placement),
        "containers": [container],
        "volumes": volumes,
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in settings.image_pull_secrets]
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace_of(vm),
            "labels": {**users, **own, **labels},
            "annotations": {names.ATTEMPT_ANNOTATION: str(attempt), "kubectl.kubernetes.io/default-container": names.CONTAINER},
            "ownerReferences": [owner_reference(vm, VIRTUAL_MACHINES)],
        },
        "spec": spec,
    }


def grace_seconds(vm: Object) -> int:
    """Return the grace period of the pod: the machine's, and what virt-launcher needs beyond it."""
    given = dig(vm, "spec", "terminationGracePeriodSeconds")
    return (30 if given is None else int(given)) + GRACE_MARGIN_SECONDS


def _security_context(vm: Object, claims: Mapping[str, Object | None]) -> Object:
    context: Object = {
        "runAsNonRoot": True,
        "runAsUser": layout.USER_ID,
        "runAsGroup": layout.USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if any(not disks.is_block(claims.get(each)) for each in disks.claims_of(vm)):
        # Walks the whole volume on each mount, so only where a Filesystem claim needs it, and not again when its root is right.
        context |= {"fsGroup": layout.USER_ID, "fsGroupChangePolicy": "OnRootMismatch"}
    return context


def _resources(vm: Object, placement: Placement) -> Object:
    domain = _domain(vm)
    memory = hardware.memory_bytes(domain) + memory_overhead(vm)
    # What a pod may fill of the node's disk is requested, too: however many there are on a node, they do not fill it.
    both = {"memory": _mebibytes(memory), "ephemeral-storage": _mebibytes(LOG_BYTES + overlays_size(vm))}
    if hardware.interfaces(domain):
        both[names.TUN_RESOURCE] = "1"
    if placement.kvm:
        both[names.KVM_RESOURCE] = "1"
    count = hardware.vcpus(domain)
    return {"requests": {"cpu": f"{CPU_REQUEST_MILLI * count}m", **both}, "limits": {"cpu": str(count), **both}}


def _storage(vm: Object, claims: Mapping[str, Object | None]) -> tuple[list[Object], list[Object], list[Object]]:
    """Return volumes, mounts and devices. Volumes of disks are numbered: a disk's name can be longer than a volume's."""
    volumes: list[Object] = [
        {"name": each.name, "emptyDir": {"medium": "Memory", "sizeLimit": _mebibytes(each.size)}} for each in layout.IN_MEMORY
    ]
    mounts: list[Object] = [{"name": each.name, "mountPath": each.directory} for each in layout.IN_MEMORY]
    if overlays := overlays_size(vm):
        volumes.append({"name": layout.OVERLAYS_VOLUME, "emptyDir": {"sizeLimit": _mebibytes(overlays)}})
        mounts.append({"name": layout.OVERLAYS_VOLUME, "mountPath": layout.OVERLAYS_DIRECTORY})
    devices: list[Object] = []
    for index, disk in enumerate(disks.disks_of(vm)):
        volume, name = f"disk-{index}", disk["name"]
        claim = disks.claim_of(disk)
        if claim is None:
            volumes.append({"name": volume, "image": _image(dig(disk, "source") or {}, "reference", "pullPolicy")})
            mounts.append({"name": volume, "mountPath": f"{layout.IMAGES_DIRECTORY}/{name}", "readOnly": True})
            continue
        volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        path = f"{layout.DISKS_DIRECTORY}/{name}"
        if disks.is_block(claims.get(claim)):
            devices.append({"name": volume, "devicePath": path})
        else:
            mounts.append({"name": volume, "mountPath": path} | ({"readOnly": True} if disk["readOnly"] else {}))
    boot = dig(vm, "spec", "domain", "firmware", "kernelBoot", "container")
    if boot:
        volumes.append({"name": "kernel-boot", "image": _image(boot, "image", "imagePullPolicy")})
        mounts.append({"name": "kernel-boot", "mountPath": layout.KERNEL_BOOT_DIRECTORY, "readOnly": True})
    return volumes, mounts, devices


def _mebibytes(amount: int) -> str:
    return f"{math.ceil(amount / MIB)}Mi"


def _image(source: Mapping[str, Any], reference: str, policy: str) -> Object:
    image: Object = {"reference": source.get(reference) or ""}
    if source.get(policy):
        image["pullPolicy"] = source[policy]
    return image


def _scheduling(vm: Object, placement: Placement) -> Object:
    spec = dig(vm, "spec") or {}
    result: Object = {key: spec[key] for key in _PASSED_ON if spec.get(key)}
    if spec.get("nodeName") and not placement.not_on_node:
        result["nodeName"] = spec["nodeName"]
    selector = _translated({**(spec.get("nodeSelector") or {}), **placement.node_selector})
    if selector:
        result["nodeSelector"] = selector
    if affinity := _affinity(spec.get("affinity") or {}, placement):
        result["affinity"] = affinity
    return result


def _translated(selector: Mapping[str, str]) -> dict[str, str]:
    return {(HOSTNAME_LABEL if key == names.HOSTNAME_SELECTOR else key): value for key, value in selector.items()}


def _affinity(given: Object, placement: Placement) -> Object:
    node: Object = dict(given.get("nodeAffinity") or {})
    if placement.not_on_node:
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or [{}]  # terms are alternatives: the rule has to stand in each of them
        rule = _not_on((placement.not_on_node,))
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {
            **required,
            "nodeSelectorTerms": [{**term, "matchFields": [*(term.get("matchFields") or []), *rule]} for term in terms],
        }
    if placement.avoid_nodes:
        preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        avoid = {"weight": 100, "preference": {"matchFields": _not_on(placement.avoid_nodes)}}
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, avoid]
    return {**given, "nodeAffinity": node} if node else dict(given)


def _not_on(nodes: Iterable[str]) -> list[Object]:
    """``matchFields`` takes one value a rule; it means the node's name, which its hostname label need not be."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [each]} for each in nodes]

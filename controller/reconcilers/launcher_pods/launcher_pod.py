"""The pod of a virtual machine: a pure function of the machine, its claims and the settings.

It passes Pod Security ``restricted``; virt-handler does privileged work (tap devices, ownership of block devices and /dev/kvm) from
outside. ``tests/golden/pods`` has examples.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object, labels_of, name_of, namespace_of, owner_reference, uid_of
from apiserver.apis.virt.hardware import memory as guest_memory
from apiserver.apis.virt.hardware import resources
from apiserver.apis.virt.lifecycle import migration_attempts, power
from apiserver.apis.virt.places import layout, names, shape
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import attachments, hot_plug, hot_plug_interfaces, pod_memory, running, service_accounts
from apiserver.apis.virt.spec.described import domain_of
from controller.reconcilers.launcher_pods import (
    access_credentials,
    consoles,
    cpu,
    disks,
    domain_xml,
    downward_api,
    filesystems,
    firmware,
    graphics,
    host_devices,
    inputs,
    interfaces,
    io_threads,
    launcher,
    made_from,
    managed_save,
    memory,
    redirected_devices,
    sound,
    tpm,
    video,
    vsock,
)
from controller.reconcilers.launcher_pods.requirements import Claims, Requirements, in_mebibytes, in_processors
from controller.reconcilers.launcher_pods.scheduling import Placement, beside_guest, scheduling, tolerations
from controller.reconcilers.settings import Settings

GRACE_MARGIN_SECONDS: Final = 15
"""virt-launcher powers the guest off at most 8 s after the machine's grace period, and exits."""
ATTACHMENT_GRACE_SECONDS: Final = 5
OF_A_GUEST: Final = frozenset({"serviceAccountName", "serviceAccount", "topologySpreadConstraints", "nodeName", "nodeSelector", "affinity"})
"""A pod without a guest does not take these fields of the spec from the machine."""

_FAMILIES: Final = (
    launcher,
    cpu,
    memory,
    disks,
    filesystems,
    consoles,
    io_threads,
    firmware,
    interfaces,
    graphics,
    video,
    inputs,
    sound,
    tpm,
    vsock,
    host_devices,
    redirected_devices,
)


def launcher_pod(vm: Object, attempt: int, claims: Claims, settings: Settings, placement: Placement) -> Object:
    """Return the pod of a machine's start attempt."""
    name = names.launcher_pod_name(name_of(vm), uid_of(vm), attempt)
    return _pod(vm, name, {}, attempt, _requirements(vm, claims, placement), settings, placement)


def target_pod(
    vm: Object, migration: Object, attempt: int, claims: Claims, settings: Settings, placement: Placement, coming: Collection[str] = ()
) -> Object:
    """Return a migration's target pod; ``attempt``: the machine's start attempt, as of the source's pod.

    ``coming``: names of the network cards that the guest may get there.
    """
    vm = hot_plug_interfaces.with_coming(vm, coming)
    name = names.target_pod_name(name_of(vm), migration_attempts.uid_of(migration))
    labels = {names.MIGRATION_LABEL: uid_of(migration)}
    pod = _pod(vm, name, labels, attempt, _requirements(vm, claims, placement), settings, placement)
    pod["metadata"]["annotations"] |= attachments.pod_annotations(vm, coming)
    return pod


def memory_of(vm: Object, pod: Object) -> str:
    """Return the memory that a machine's pod requests, and its parts, for people."""
    domain, (container, *_) = domain_of(vm), pod["spec"]["containers"]
    requested = quantity.parse(container["resources"]["requests"]["memory"]).bytes
    guest = 0 if guest_memory.page_size(domain) else resources.memory_request(domain)
    parts = f"{in_mebibytes(guest)} for the guest and {in_mebibytes(requested - guest)} for QEMU, libvirt and virt-launcher"
    return f"{in_mebibytes(requested)} of memory, {parts}"


def removal_pod_name(vm: Object) -> str:
    """Return the name of the pod that :func:`removal_pod` returns."""
    return names.removal_pod_name(name_of(vm), uid_of(vm))


def removal_pod(vm: Object, claim: str, settings: Settings) -> Object:
    """Return the pod that deletes a deleted machine's files from the claim for images of its memory."""
    needed = launcher.removal_requirements() + managed_save.removal_requirements(claim, uid_of(vm))
    return _pod(vm, removal_pod_name(vm), {}, power.current_attempt(vm), needed, settings, Placement())


def attachment_pod(vm: Object, disk: Object, settings: Settings, *, is_block: bool = False) -> Object:
    """Return the pod that has the claim or image of a disk on the guest's node; virt-handler takes the mount, or the device (``is_block``).

    It has no labels and networks of the machine, and the readiness gate keeps Services away.
    """
    needed = launcher.attachment_requirements(disk, is_block=is_block)
    pod = _pod(vm, hot_plug.pod_name(vm, disk), {}, power.current_attempt(vm), needed, settings, Placement())
    pod["metadata"]["labels"] = _own_labels(vm)
    pod["metadata"]["annotations"] = {}
    spec = {key: value for key, value in pod["spec"].items() if key not in OF_A_GUEST}
    pod["spec"] = {**spec, "terminationGracePeriodSeconds": ATTACHMENT_GRACE_SECONDS, **beside_guest(vm)}
    return pod


def resized(vm: Object, claims: Claims, guest_bytes: int) -> Object:
    """Return the memory request and limit, as ``resources``, of a running guest's pod for its new disks and at least ``guest_bytes``."""
    found = _resources(requirements(hot_plug.with_added(vm), claims, guest_bytes), Placement())
    return {each: {"memory": amounts["memory"]} for each, amounts in found.items()}


def requirements(vm: Object, claims: Claims, guest_bytes: int = 0) -> Requirements:
    """Return the requirements of a machine's fields, not its XML's, with at least ``guest_bytes`` of memory (0: as its status records)."""
    spec = running.spec_of(vm)
    domain = pod_memory.with_guest(domain_of(vm), guest_bytes or pod_memory.recorded(vm))
    return sum(
        (family.requirements(domain, claims) for family in _FAMILIES),
        start=access_credentials.requirements(spec) + managed_save.requirements(spec),
    )


def _requirements(vm: Object, claims: Claims, placement: Placement) -> Requirements:
    return requirements(vm, claims) + domain_xml.requirements(vm, kvm=placement.kvm)


def _pod(
    vm: Object,
    name: str,
    labels: Mapping[str, str],
    attempt: int,
    needed: Requirements,
    settings: Settings,
    placement: Placement,
) -> Object:
    own = _own_labels(vm)
    users = {key: value for key, value in labels_of(vm).items() if key not in names.POD_LABELS}  # so that Services can select the machine
    of_image: Object = {
        "image": settings.launcher_image,
        "imagePullPolicy": settings.launcher_pull_policy,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
    }
    container: Object = {
        "name": names.CONTAINER,
        **of_image,
        "resources": _resources(needed, placement),
        "volumeMounts": list(needed.mounts),
    }
    if needed.devices:
        container["volumeDevices"] = list(needed.devices)
    if needed.ports:
        container["ports"] = list(needed.ports)
    account = service_accounts.of(domain_of(vm))
    spec: Object = {
        **(dict.fromkeys(("serviceAccountName", "serviceAccount"), account) if account else {}),  # kube-apiserver sets both
        "automountServiceAccountToken": shape.SPEC["automountServiceAccountToken"],
        "enableServiceLinks": False,
        "restartPolicy": shape.SPEC["restartPolicy"],
        "terminationGracePeriodSeconds": grace_seconds(vm),
        "securityContext": _security_context(needed),
        **scheduling(vm, placement),
        "tolerations": tolerations(vm, placement),
        "readinessGates": [{"conditionType": names.GUEST_RUNNING_GATE}],
        **({"initContainers": [{**each, **of_image} for each in needed.sidecars]} if needed.sidecars else {}),
        "containers": [container],
        "volumes": list(needed.volumes),
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
            "annotations": {
                names.ATTEMPT_ANNOTATION: str(attempt),
                names.SPEC_ANNOTATION: made_from.spec_hash(vm),
                "kubectl.kubernetes.io/default-container": names.CONTAINER,
                **downward_api.notes(vm),
                **attachments.pod_annotations(vm),
            },
            "ownerReferences": [owner_reference(vm, VIRTUAL_MACHINES)],
        },
        "spec": spec,
    }


def _own_labels(vm: Object) -> dict[str, str]:
    return {names.COMPONENT_LABEL: names.LAUNCHER, names.VM_NAME_LABEL: name_of(vm), names.CREATED_BY_LABEL: uid_of(vm)}


def grace_seconds(vm: Object) -> int:
    """Return the pod's grace period: the machine's plus virt-launcher's margin."""
    return power.grace_of_spec(vm) + GRACE_MARGIN_SECONDS


def _security_context(needed: Requirements) -> Object:
    context: Object = {
        "runAsNonRoot": True,
        "runAsUser": layout.USER_ID,
        "runAsGroup": layout.USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if needed.owns_files:
        # The kubelet walks the whole volume on each mount, so set this only for a Filesystem claim, and skip it if the root matches.
        context |= {"fsGroup": layout.USER_ID, "fsGroupChangePolicy": "OnRootMismatch"}
    return context


def _resources(needed: Requirements, placement: Placement) -> Object:
    # Requesting all that the pod may use prevents that pods fill the node's disk.
    memory = needed.guest_bytes + needed.overhead_bytes
    both = {
        "ephemeral-storage": in_mebibytes(needed.storage_bytes),
        **{name: str(count) for name, count in needed.resources.items()},
    }
    if placement.kvm:
        both[names.KVM_RESOURCE] = "1"
    requests = {"cpu": in_processors(needed.cpu_request_milli), "memory": in_mebibytes(memory - needed.unrequested_bytes), **both}
    limits = {"memory": in_mebibytes(memory), **both}
    if needed.cpu_limit_milli:
        limits = {"cpu": in_processors(needed.cpu_limit_milli), **limits}
    return {"requests": requests, "limits": limits}

"""The structure of our kinds, for the processes that read them as plain JSON: virt-controller and virt-handler. Pure.

virt-api validates what it stores, with the models of ``v1alpha1.types``. Whoever decides about pods and guests does not rely on that: an
object may have been stored by an older release, restored from a backup or written into etcd by somebody else. So each loop looks at an
object once, here, before anything reads it; ``tests/unit/apiserver/apis/virt/test_structure.py`` holds these tables against the models.

What virt-controller only copies into a pod (tolerations, most of affinity) is for kube-apiserver to judge.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver.apis.meta.structure import Check, amount, anything, boolean, integer, items, members, one_of, text, texts, time, told
from apiserver.apis.virt import phases, power

_INT32: Final = integer(32)
_INT64: Final = integer(64)
_PULL_POLICY: Final = one_of("Always", "IfNotPresent", "Never")
_RUN_STRATEGY: Final = one_of(*power.RUN_STRATEGIES)

_METADATA: Final = members(
    {
        "name": text,
        "namespace?": text,
        "uid?": text,
        "resourceVersion?": text,
        "generation?": _INT64,
        "labels?": texts,
        "annotations?": texts,
        "finalizers?": items(text),
        "creationTimestamp?": time,
        "deletionTimestamp?": time,
        "deletionGracePeriodSeconds?": _INT64,
    }
)
_CONDITIONS: Final = items(
    members(
        {
            "type": text,
            "status": one_of("True", "False", "Unknown"),
            "reason?": text,
            "message?": text,
            "lastTransitionTime?": time,
            "observedGeneration?": _INT64,
        }
    )
)
_TIMESTAMPS: Final = items(members({"phase": text, "time": time}))

_DISK: Final = members(
    {
        "name?": text,
        "type": one_of("PersistentVolumeClaim", "Image"),
        "device?": one_of("disk", "cdrom"),
        "source": members({"name?": text, "reference?": text, "path?": text, "pullPolicy?": _PULL_POLICY, "sizeLimit?": amount}),
        "target?": members({"bus?": one_of("virtio", "sata", "scsi")}),
        "readOnly?": boolean,
        "bootOrder?": _INT32,
        "serial?": text,
    }
)
_INTERFACE: Final = members(
    {"name": text, "type?": one_of("masquerade"), "model?": one_of("virtio", "e1000", "e1000e", "rtl8139"), "mac?": text}
)
_GRAPHICS: Final = items(members({"type": one_of("vnc", "spice")}))
_KERNEL_BOOT: Final = members(
    {
        "container": members({"image": text, "imagePullPolicy?": _PULL_POLICY, "kernelPath": text, "initrdPath?": text}),
        "kernelArgs?": text,
    }
)
_DOMAIN: Final = members(
    {
        "cpu?": members({"sockets?": _INT32, "cores?": _INT32, "threads?": _INT32, "model?": text}),
        "memory?": members({"guest?": amount}),
        "machine?": members({"type?": text}),
        "firmware?": members({"uuid?": text, "kernelBoot?": _KERNEL_BOOT}),
        "devices?": members(
            {
                "disks?": items(_DISK),
                "interfaces?": items(_INTERFACE),
                "graphics?": _GRAPHICS,
                "consoles?": items(members({"type": one_of("pty")})),
            }
        ),
    }
)
_NODE_TERMS: Final = items(members({"matchFields?": items(anything)}))
_NODE_AFFINITY: Final = members(
    {
        "requiredDuringSchedulingIgnoredDuringExecution?": members({"nodeSelectorTerms?": _NODE_TERMS}),
        "preferredDuringSchedulingIgnoredDuringExecution?": items(anything),
    }
)
_SPEC: Final = members(
    {
        "runStrategy?": _RUN_STRATEGY,
        "rerun?": members({"limit?": _INT32, "startTimeoutSeconds?": _INT32}),
        "terminationGracePeriodSeconds?": _INT64,
        "nodeSelector?": texts,
        "affinity?": members({"nodeAffinity?": _NODE_AFFINITY}),
        "priorityClassName?": text,
        "schedulerName?": text,
        "nodeName?": text,
        "domain": _DOMAIN,
    }
)
_ATTEMPT: Final = members(
    {
        "number": _INT32,
        "generation?": _INT64,
        "podName?": text,
        "nodeName?": text,
        "startTime?": time,
        "runningTime?": time,
        "stopTime?": time,
        "endTime?": time,
        "result?": one_of(*power.RESULTS),
        "message?": text,
    }
)
_STATUS: Final = members(
    {
        "observedGeneration?": _INT64,
        "phase?": one_of(*phases.VM_PHASES),
        "conditions?": _CONDITIONS,
        "attempt?": _INT32,
        "attempts?": items(_ATTEMPT),
        "nodeName?": text,
        "podName?": text,
        "podUID?": text,
        "podIP?": text,
        "domain?": members({"state?": text, "reason?": text, "type?": text}),
        "interfaces?": items(members({"name": text, "mac?": text, "ipAddress?": text, "ipAddresses?": items(text)})),
        "graphics?": _GRAPHICS,
        "migration?": members(
            {
                **dict.fromkeys(("name?", "uid?", "sourceNode?", "sourcePod?", "targetNode?", "targetPod?", "phase?"), text),
                "startTime?": time,
                "endTime?": time,
            }
        ),
        "request?": members(
            {
                "action": one_of(*power.ACTIONS),
                "time?": time,
                "runStrategy?": _RUN_STRATEGY,
                "generation?": _INT64,
                "attempt?": _INT32,
            }
        ),
        "runStrategyGeneration?": _INT64,
        "phaseTransitionTimestamps?": _TIMESTAMPS,
    }
)
_MIGRATION_STATUS: Final = members(
    {
        "phase?": one_of(*phases.MIGRATION_PHASES),
        "conditions?": _CONDITIONS,
        "observedGeneration?": _INT64,
        **dict.fromkeys(("sourceNode?", "sourcePod?", "sourcePodUID?", "targetNode?", "targetPod?", "targetPodUID?"), text),
        **dict.fromkeys(("targetAddress?", "message?"), text),
        "startTime?": time,
        "endTime?": time,
        "phaseTransitionTimestamps?": _TIMESTAMPS,
    }
)

_WITH_METADATA: Final = members({"metadata": _METADATA})
_WITH_DOMAIN: Final = members({"spec": members({"domain": _DOMAIN})})
VIRTUAL_MACHINE: Final[Check] = members({"metadata": _METADATA, "spec": _SPEC, "status?": _STATUS})
MIGRATION: Final[Check] = members(
    {
        "metadata": _METADATA,
        "spec": members({"selector": members({"name": text}), "nodeSelector?": texts}),
        "status?": _MIGRATION_STATUS,
    }
)


def of_virtual_machine(vm: Any) -> tuple[str, ...]:  # noqa: ANN401  # whether it is an object is the question
    """Return what is wrong with the structure of a VirtualMachine, in sentences with the place; empty when it is sound."""
    return told(VIRTUAL_MACHINE(vm))


def of_metadata(obj: Any) -> tuple[str, ...]:  # noqa: ANN401  # as above
    """Return what is wrong with the metadata of an object of ours, in sentences with the place; empty when they are sound."""
    return told(_WITH_METADATA(obj))


def has_sound_domain(vm: Any) -> bool:  # noqa: ANN401  # as above
    """Return whether ``spec.domain`` can be read."""
    return not _WITH_DOMAIN(vm)


def of_migration(migration: Any) -> tuple[str, ...]:  # noqa: ANN401  # as above
    """Return what is wrong with the structure of a Migration, in sentences with the place; empty when it is sound."""
    return told(MIGRATION(migration))

"""Reasons, unknown to the scheduler, why no node fits the target pod of a migration. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import chosen_cpu
from controller.reconcilers.launcher_pods import cpu, scheduling
from controller.reconcilers.pods import pod_state

MAX_INCOMPATIBLE: Final = 3
LEFT_OUT: Final = (
    "the target pod excludes nodes that were not usable for guests when it was created. If such a node is usable now, cancel the "
    "migration and migrate again"
)


def reasons(migration: Object, vm: Object | None, target: Object, incompatible: Mapping[str, str]) -> Iterator[str]:
    """Yield additions to the scheduler's message that explain why no node takes the target pod.

    ``incompatible`` has nodes with incompatible virt-handlers, each with a message. If there are any, or the Migration's message already
    has :data:`LEFT_OUT`, that is yielded, too: the pod still excludes the nodes.
    """
    source = dig_migration(migration, "status", "sourceNode")
    if selector := dig_migration(migration, "spec", "nodeSelector"):
        labels = scheduling.in_words(selector)
        yield f"the Migration requires a node other than {source}, where the guest runs, with {labels}: see kubectl get nodes"
    elif source in _hostnames(dig_vm(vm, "spec", "nodeSelector") or {}):
        yield f"spec.nodeSelector of the virtual machine selects {source}, the guest's present node, but a migration needs another node"
    yield from sorted(incompatible.values())[:MAX_INCOMPATIBLE]
    if incompatible or LEFT_OUT in str(dig_migration(migration, "status", "message") or ""):
        yield LEFT_OUT
    if vm is not None and pod_state.has_kvm(target):
        if demands := cpu.demands(vm, chosen_cpu.running(vm)):
            yield demands
        if cpu.is_the_nodes(vm):
            both = " and ".join(f"{each}…" for each in (names.HOST_MODEL_LABELS, names.CPU_FEATURE_LABELS))
            yield f"the guest uses the CPU features of node {source}, so the target node needs all {both} labels of that node"


def _hostnames(selector: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(selector[key] for key in (names.HOSTNAME_LABEL, names.HOSTNAME_SELECTOR) if key in selector)

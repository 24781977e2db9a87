"""One virtual machine with everything that the decision about it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from apiserver.apis.meta.objects import Object
from controller.reconcilers.disk_claims import InUse
from controller.reconcilers.pods import networks, ownership
from controller.reconcilers.pods.liveness import NOTHING, Evidence
from controller.reconcilers.settings import Settings


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the decision needs."""

    vm: Object
    pods: tuple[Object, ...]
    """Every pod of this machine's: those that it controls, and those that the status names by uid."""
    claims: Mapping[str, Object | None]
    now: datetime
    settings: Settings
    kvm_offered: bool = False
    evidence: Evidence = NOTHING
    """What is known about the pods besides their own statuses: silent nodes, and pods that are gone."""
    refusal: str = ""
    """Reason why the API server did not take the pod of this attempt a moment ago."""
    migrations: tuple[Object, ...] = ()
    """Migrations of the machine's name."""
    targets: frozenset[str] = frozenset()
    """Names of the target pods of the machine's Migrations that still hold pods: their own loop ends them."""
    rested: float = 0.0
    """For how many seconds the newest attempt is over, measured (:mod:`controller.reconcilers.virtual_machines.endings`)."""
    namesakes: tuple[str, ...] = ()
    """Names of the other machines of the namespace that have a pod, and a MAC address of this one."""
    claims_in_use: tuple[InUse, ...] = ()
    """Claims that this machine needs and that another one uses now."""
    servers_in_use: tuple[InUse, ...] = ()
    """Disks of servers, likewise."""
    files_in_use: tuple[str, ...] = ()
    """Files of the pod's node that this machine needs and another one uses now, each with the words for that one."""
    mount_events: tuple[Object, ...] = ()
    """Events of its pod's kubelet about volumes that it cannot mount (:mod:`controller.reconcilers.pods.mounted_sources`)."""
    networks: networks.Found = field(default_factory=networks.Found)
    """Networks that the machine names, while it starts."""
    sandbox_events: tuple[Object, ...] = ()
    """Events of its pod's kubelet about networks that it cannot make (:mod:`controller.reconcilers.pods.sandboxes`)."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """Nodes whose virt-handlers speak another contract (:mod:`apiserver.apis.virt.contract`), and the words for each."""
    nodes: tuple[Object, ...] = ()
    """All nodes, where a CPU may have to be chosen for the machine (:mod:`controller.reconcilers.nodes.baseline_cpu`)."""


def own_pod(seen: Observed, pods: tuple[Object, ...]) -> Object | None:
    """Return the pod that the status names, if it is among these."""
    reference = ownership.of_status(seen.vm)
    return None if reference is None else next((pod for pod in pods if ownership.is_meant(pod, reference, seen.vm)), None)

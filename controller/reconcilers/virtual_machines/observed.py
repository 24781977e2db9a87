"""A virtual machine with the input of its decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import failed_starts
from controller.reconcilers.disk_claims import InUse
from controller.reconcilers.pods import networks, ownership
from controller.reconcilers.pods.liveness import NOTHING, Evidence
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import restart_turns


@dataclass(frozen=True, slots=True)
class Observed:
    """Input of the decision."""

    vm: Object
    pods: tuple[Object, ...]
    """All pods of the machine: those it controls, and those in its status by uid."""
    claims: Mapping[str, Object | None]
    """Claims of the running form, and of the disks that the guest may get."""
    now: datetime
    settings: Settings
    kvm_offered: bool = False
    evidence: Evidence = NOTHING
    """What is known about the pods besides their own statuses: silent nodes, and pods that are gone."""
    refusal: str = ""
    """Why the API server recently refused this attempt's pod."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Its recent refusals of actions for the running guest, by request."""
    migrations: tuple[Object, ...] = ()
    """Migrations for the machine's name."""
    targets: frozenset[str] = frozenset()
    """Target pod names of the machine's unfinished Migrations, which their own loop deletes."""
    rested: float = 0.0
    """Measured seconds since the newest attempt ended (:mod:`controller.reconcilers.virtual_machines.endings`)."""
    namesakes: tuple[str, ...] = ()
    """Names of other machines in the namespace with a pod and the same MAC address."""
    claims_in_use: tuple[InUse, ...] = ()
    """Claims of this machine that another one uses."""
    servers_in_use: tuple[InUse, ...] = ()
    """Disks of servers that another one uses."""
    files_in_use: tuple[str, ...] = ()
    """Files of the pod's node that another machine uses, each with a description."""
    mount_events: tuple[Object, ...] = ()
    """The kubelet's Events about volumes (:mod:`controller.reconcilers.pods.mounted_sources`)."""
    networks: networks.Found = field(default_factory=networks.Found)
    """Networks of the machine, while it starts."""
    sandbox_events: tuple[Object, ...] = ()
    """The kubelet's Events about networks (:mod:`controller.reconcilers.pods.sandboxes`)."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """Nodes with virt-handlers of another contract (:mod:`apiserver.apis.virt.contract`), each with a message."""
    non_operational: Mapping[str, failed_starts.Verdict] = field(default_factory=dict)
    """Nodes that a start avoids."""
    lost: restart_turns.Queue = field(default_factory=restart_turns.Queue)
    """The machines of lost nodes, if this is one that may restart."""
    attachment_pods: tuple[Object, ...] = ()
    """Pods of the machine that only have the claim of a disk."""
    wanted_in_use: Mapping[str, str] = field(default_factory=dict)
    """Names of other machines by the claim of a disk that the guest may get."""
    nodes: tuple[Object, ...] = ()
    """All nodes, if a CPU may be chosen (:mod:`controller.reconcilers.nodes.baseline_cpu`)."""


def own_pod(seen: Observed, pods: tuple[Object, ...]) -> Object | None:
    """Return the pod in the status if it is among these."""
    reference = ownership.of_status(seen.vm)
    return None if reference is None else next((pod for pod in pods if ownership.is_meant(pod, reference, seen.vm)), None)

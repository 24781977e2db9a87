"""A machine with its decision's input."""

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
    """Input of the decision about a machine; what its state does not need stays empty."""

    vm: Object
    pods: tuple[Object, ...]
    """Controlled by the machine, or in its status by uid."""
    claims: Mapping[str, Object | None]
    """Of the running form, and of the disks that the guest may get."""
    now: datetime
    settings: Settings
    kvm_offered: bool = False
    evidence: Evidence = NOTHING
    """About unreachable nodes, and pods that are gone."""
    refusal: str = ""
    """Why the API server refused this attempt's pod."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """The API server's refusals for the running guest, by request."""
    migrations: tuple[Object, ...] = ()
    targets: frozenset[str] = frozenset()
    """Target pods of unfinished Migrations, which the other loop deletes."""
    rested: float = 0.0
    """Measured seconds since the newest attempt ended."""
    namesakes: tuple[str, ...] = ()
    """Other machines in the namespace with a pod and the same MAC address."""
    claims_in_use: tuple[InUse, ...] = ()
    servers_in_use: tuple[InUse, ...] = ()
    files_in_use: tuple[str, ...] = ()
    mount_events: tuple[Object, ...] = ()
    networks: networks.Found = field(default_factory=networks.Found)
    sandbox_events: tuple[Object, ...] = ()
    incompatible: Mapping[str, str] = field(default_factory=dict)
    """By node; each has an incompatible virt-handler."""
    fenced: frozenset[str] = frozenset()
    """Nodes where no pod of the machine may start."""
    non_operational: Mapping[str, failed_starts.Verdict] = field(default_factory=dict)
    trials: frozenset[str] = frozenset()
    """Of these nodes, those that this start may try."""
    lost: restart_turns.Queue = field(default_factory=restart_turns.Queue)
    """Machines of lost nodes, if this is one that may restart."""
    attachment_pods: tuple[Object, ...] = ()
    """They only have a disk's claim."""
    wanted_in_use: Mapping[str, str] = field(default_factory=dict)
    """Other machines by the claim of a disk that the guest may get."""
    nodes: tuple[Object, ...] = ()


def own_pod(seen: Observed, pods: tuple[Object, ...]) -> Object | None:
    """Return the pod in the machine's status if it is among ``pods``, else None."""
    reference = ownership.of_status(seen.vm)
    return None if reference is None else next((pod for pod in pods if ownership.is_meant(pod, reference, seen.vm)), None)

"""The operator's settings for the whole cluster, from flags of virt-controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.lifecycle.migration_policies import Defaults

UpdateStrategy: TypeAlias = Literal["LiveMigrate", "Evict", "None"]
TaintEffect: TypeAlias = Literal["PreferNoSchedule", "NoSchedule"]
Acceleration: TypeAlias = Literal["auto", "kvm", "emulation"]

FIELD_MANAGER: Final = "virt-controller"


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """Limits for Migrations."""

    per_node: int = 2
    """From a node."""
    per_cluster: int = 5
    scheduling_seconds: int = 300
    """For a user's migration to get a node; 0: unlimited."""
    kept: int = 5


@dataclass(frozen=True, slots=True)
class WorkloadUpdate:
    """How guests with a virt-launcher of another version are updated: ``batch_size`` at a time, and begun per ``batch_seconds``."""

    strategy: UpdateStrategy = "LiveMigrate"
    batch_size: int = 5
    batch_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds until an object without watch events is reconciled again, seconds between attempts, and the age of shared values."""

    unwatched: float = 5.0
    """A pod lacks labels or owner."""
    networks: float = 10.0
    """A machine waits for a network."""
    queue: float = 20.0
    """A Migration waits for its turn. The end of others wakes it, except for a lost machine."""
    updates: float = 5.0
    """All machines, while one is outdated."""
    back_off: tuple[int, int] = (5, 20)
    """After a Migration's first and second attempt: a process returns in seconds, a network in half a minute."""
    shared: float = 1.0
    """Age of verdicts about all nodes, and of the queue of lost machines, which the passes of many objects share."""


@dataclass(frozen=True, slots=True)
class FenceAgent:
    """The administrator's executable that switches unreachable nodes off (docs/fencing.md)."""

    path: Path
    delay_seconds: float = 10.0
    timeout_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Restarts:
    """How fast machines of lost nodes are restarted: ``batch`` of them in ``seconds``, after ``settle_seconds``."""

    batch: int = 10
    """In the whole cluster."""
    seconds: float = 10.0
    settle_seconds: float = 2.0
    """The node's other machines become known in this time."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings of launcher pods, migrations and updates."""

    launcher_image: str
    launcher_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    acceleration: Acceleration = "auto"
    """``auto``: request kvm if a node offers it."""
    migrations: Defaults = field(default_factory=Defaults)
    rewritten_images: tuple[str, ...] = ()
    """Webhooks of the cluster rewrite ``launcher_image`` into these."""
    workload_update: WorkloadUpdate = field(default_factory=WorkloadUpdate)
    eviction_strategy: evictions.Strategy = evictions.LIVE_MIGRATE_IF_POSSIBLE
    """For machines that specify none."""
    restarts: Restarts = field(default_factory=Restarts)
    times: Times = field(default_factory=Times)

    def wants_kvm(self, *, offered: bool) -> bool:
        """Return whether new pods must request the kvm device; ``offered``: a node advertises one."""
        return self.acceleration == "kvm" or (self.acceleration == "auto" and offered)

"""The operator's decisions for the whole cluster, by flags of virt-controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.lifecycle.migration_policies import Defaults

UpdateStrategy: TypeAlias = Literal["LiveMigrate", "Evict", "None"]
Acceleration: TypeAlias = Literal["auto", "kvm", "emulation"]

FIELD_MANAGER: Final = "virt-controller"


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """Of Migrations."""

    per_node: int = 2
    """Migrations that leave a node at a time."""
    per_cluster: int = 5
    """Migrations that are under way at a time."""
    scheduling_seconds: int = 300
    """For the target of one that people made to have a node; 0: for ever."""
    kept: int = 5
    """Finished ones of a machine, the newest."""


@dataclass(frozen=True, slots=True)
class WorkloadUpdate:
    """Of guests whose virt-launcher is of another release."""

    strategy: UpdateStrategy = "LiveMigrate"
    batch_size: int = 5
    """Guests at a time, and in each interval."""
    batch_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds until something is reconciled again of which no event tells."""

    unwatched: float = 5.0
    """A machine with a pod of whose changes nobody is told, because its labels or its owner were taken off."""
    networks: float = 10.0
    """A machine that waits for a network: nobody tells virt-controller when one is made."""
    queue: float = 20.0
    """A Migration that waits for its turn: what ends tells the others, but for a machine that is lost."""
    updates: float = 5.0
    """All machines, while there is one that is outdated."""
    back_off: tuple[int, int] = (5, 20)
    """A Migration after its first attempt, and after its second: a process is back in seconds, a network in half a minute."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of launcher pods, and of the migrations between them."""

    launcher_image: str
    launcher_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    acceleration: Acceleration = "auto"
    """``auto``: ask for kvm when some node offers it; ``kvm``: always ask; ``emulation``: never."""
    migrations: Defaults = field(default_factory=Defaults)
    rewritten_images: tuple[str, ...] = ()
    """Names that webhooks of the cluster turn ``launcher_image`` into."""
    workload_update: WorkloadUpdate = field(default_factory=WorkloadUpdate)
    eviction_strategy: evictions.Strategy = evictions.LIVE_MIGRATE_IF_POSSIBLE
    """Of machines that say none."""
    times: Times = field(default_factory=Times)

    def wants_kvm(self, *, offered: bool) -> bool:
        """Return whether a pod asks for the kvm device; ``offered``: some node advertises one."""
        return self.acceleration == "kvm" or (self.acceleration == "auto" and offered)

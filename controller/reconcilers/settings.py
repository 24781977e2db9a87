"""The operator's decisions for the whole cluster, by flags of virt-controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Acceleration: TypeAlias = Literal["auto", "kvm", "emulation"]

FIELD_MANAGER: Final = "virt-controller"


@dataclass(frozen=True, slots=True)
class Settings:
    """Of launcher pods."""

    launcher_image: str
    launcher_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    acceleration: Acceleration = "auto"
    """``auto``: ask for kvm when some node offers it; ``kvm``: always ask; ``emulation``: never."""

    def wants_kvm(self, *, offered: bool) -> bool:
        """Return whether a pod asks for the kvm device; ``offered``: some node advertises one."""
        return self.acceleration == "kvm" or (self.acceleration == "auto" and offered)

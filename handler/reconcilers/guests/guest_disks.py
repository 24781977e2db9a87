"""Disks that the running guest gets and loses: the steps from what virt-launcher reports to the running form. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import hot_plug
from handler.reconcilers.guests import device_steps
from launcher.protocol import messages

ATTACHED: Final = "DiskAttached"
DETACHED: Final = "DiskDetached"


class _Step(device_steps.Step):
    path_of = staticmethod(hot_plug.path_of)
    reported = 2
    """A new pod's process does not listen at once."""


class Attach(_Step):
    """Mount a disk's claim in the pod, and have the launcher attach the disk."""


class Detach(_Step):
    """Have the guest release a disk, unmount its claim, and write that it is gone."""


Step = Attach | Detach


def steps(vm: Object, launcher: messages.Status) -> tuple[Step, ...]:
    """Return all missing steps, those of removed disks first."""
    if launcher.domain is None:
        return ()
    there = {each.name for each in launcher.domain.devices if each.kind == "disk" and not each.empty}
    found: tuple[Step, ...] = (
        *(Detach(each) for each in hot_plug.removed(vm)),
        *(Attach(each) for each in hot_plug.kept(vm) if each["name"] not in there),
    )
    return tuple(each for each in found if hot_plug.is_supported(each.device, launcher.domain.changes))

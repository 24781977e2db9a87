"""Network cards that the running guest gets and loses: the steps from what virt-launcher reports to the desired form. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import hot_plug_interfaces
from handler.reconcilers.guests import device_steps
from launcher.protocol import messages

ATTACHED: Final = "InterfaceAttached"
DETACHED: Final = "InterfaceDetached"


class _Step(device_steps.Step):
    path_of = staticmethod(hot_plug_interfaces.path_of)
    reported = 0


class AttachCard(_Step):
    """Set up a card's network in the pod, have the launcher attach the card, and write that the guest has it."""


class DetachCard(_Step):
    """Have the guest release a card, remove its network from the pod, and write that it is gone."""


Step = AttachCard | DetachCard


def steps(vm: Object, launcher: messages.Status) -> tuple[Step, ...]:
    """Return all missing steps, those of removed cards first."""
    if launcher.domain is None or hot_plug_interfaces.INTERFACE not in launcher.domain.changes:
        return ()
    there = {each.name for each in launcher.domain.devices if each.kind == "interface"}
    return (
        *(DetachCard(each) for each in hot_plug_interfaces.removed(vm)),
        *(AttachCard(each) for each in hot_plug_interfaces.kept(vm) if each["name"] not in there),
        *(AttachCard(each) for each in hot_plug_interfaces.coming(vm)),
    )

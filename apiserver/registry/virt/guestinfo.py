"""The subresource ``guestinfo``: the guest agent's reports."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import guestinfo
from apiserver.apis.virt.v1alpha1.guestinfo import VirtualMachineGuestInfo
from apiserver.registry.virt.reads import HandlerRead


class GuestInfo(HandlerRead):
    """Serves ``guestinfo``."""

    name = guestinfo.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachineguestinfos", "VirtualMachineGuestInfo")
    model = VirtualMachineGuestInfo

    def fields(self, answer: Object) -> Object:
        """Return the answer's valid part, cut to its bounds."""
        return guestinfo.bounded(answer)

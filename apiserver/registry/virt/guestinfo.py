"""The subresource ``guestinfo``: what the guest's agent tells, by way of virt-handler and virt-launcher."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import guestinfo
from apiserver.apis.virt.v1alpha1.guestinfo import VirtualMachineGuestInfo
from apiserver.registry.virt.reads import HandlerRead


class GuestInfo(HandlerRead):
    """Subresource ``guestinfo``: the facts that the guest's agent tells."""

    name = guestinfo.NAME
    answers = Resource(names.GROUP, names.VERSION, "virtualmachineguestinfos", "VirtualMachineGuestInfo")
    model = VirtualMachineGuestInfo

    def fields(self, answer: Object) -> Object:
        """Return what is bounded of it: neither the guest nor its node is believed to have done so."""
        return guestinfo.bounded(answer)

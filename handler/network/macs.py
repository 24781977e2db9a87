"""The MAC addresses of guests. Pure."""

from __future__ import annotations

from apiserver.apis.virt.places import network
from handler.network.binding import Unsupported


def mac_address(vm_uid: str, interface: str, given: str = "") -> str:
    """Return the guest's MAC: the one given, else one that follows from the VM and the interface, the same in every pod of it.

    Raises:
        Unsupported: a guest cannot have the one given; virt-api refuses it, but an older one, or its storage, may have let it in.
    """
    if given:
        if problem := network.mac_problem(given):
            raise Unsupported(f"interface {interface}: MAC address {given!r} {problem}")
        return network.normal_mac(given)
    return network.derived_mac(vm_uid, interface)

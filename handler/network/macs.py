"""The MAC addresses of guests. Pure."""

from __future__ import annotations

from apiserver.apis.virt.places import network
from handler.network.binding import Unsupported


def mac_address(vm_uid: str, interface: str, given: str = "") -> str:
    """Return the guest's MAC address: the given one, or one derived from VM and interface, the same in each of its pods.

    Raises Unsupported if the given one is not valid for a guest.
    """
    if given:
        if problem := network.mac_problem(given):
            raise Unsupported(f"interface {interface}: MAC address {given!r} {problem}")
        return network.normal_mac(given)
    return network.derived_mac(vm_uid, interface)

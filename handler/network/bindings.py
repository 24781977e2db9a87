"""Bindings that join interfaces, by their types. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.hardware import interfaces
from handler.network import attached, bridged, macvtap, masquerade, passt
from handler.network.binding import Binding, Observed, Plan, Unsupported, Wanted

BINDINGS: Final[Mapping[str, Binding]] = {"masquerade": masquerade.plan, "bridge": bridged.plan, interfaces.PASST: passt.plan}
"""To the pod's own network, by type of the interface."""
FURTHER: Final[Mapping[str, Binding]] = {
    "bridge": attached.plan,
    interfaces.MACVTAP: macvtap.plan,
    interfaces.SRIOV: attached.plan_card,
}
"""To further networks, by type of the interface."""


def binding_of(wanted: Wanted) -> Binding:
    """Return the binding of an interface.

    Raises:
        Unsupported: there is none of its type.
    """
    found = (FURTHER if wanted.network else BINDINGS).get(wanted.type)
    if found is None:
        raise Unsupported(f"interface {wanted.name}: type {wanted.type} is not known to this virt-handler")
    return found


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return what is to be done for an interface.

    Raises:
        Unsupported: it cannot be as the machine asks.
    """
    return binding_of(wanted)(wanted, observed)

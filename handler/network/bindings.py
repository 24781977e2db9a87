"""An interface's binding, by its type. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.hardware import interfaces
from handler.network import attached, bridged, macvtap, masquerade, passt
from handler.network.binding import Binding, Observed, Plan, Unsupported, Wanted

BINDINGS: Final[Mapping[str, Binding]] = {"masquerade": masquerade.plan, "bridge": bridged.plan, interfaces.PASST: passt.plan}
"""To the pod's own network, by interface type."""
FURTHER: Final[Mapping[str, Binding]] = {
    "bridge": attached.plan,
    interfaces.MACVTAP: macvtap.plan,
    interfaces.SRIOV: attached.plan_card,
}
"""To further networks, by interface type."""


def binding_of(wanted: Wanted) -> Binding:
    """Return the function that plans an interface, by its type and whether it is on a further network. Raises Unsupported without one."""
    found = (FURTHER if wanted.network else BINDINGS).get(wanted.type)
    if found is None:
        raise Unsupported(f"interface {wanted.name}: type {wanted.type} is not supported by this virt-handler")
    return found


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return the plan to join an interface to its network. Raises Unsupported for an impossible request."""
    return binding_of(wanted)(wanted, observed)

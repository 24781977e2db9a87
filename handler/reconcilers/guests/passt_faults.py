"""Network faults and Events from the state of passt, which relays a guest's connections. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec.described import domain_of
from handler.reconcilers.guests.guest_status import NetworkFault
from launcher.protocol import messages

PASST_ENDED: Final = "PasstEnded"
LOST: Final = "passt ended and is restarted; the guest's connections are lost, but it can open new ones"


def fault(vm: Object, observed: messages.Status) -> NetworkFault | None:
    """Return the fault if the launcher of a machine with a passt interface reports a problem of passt and is not stopping, else None."""
    found = interfaces.of_passt(domain_of(vm))
    if not found or not observed.passt_problem or observed.stopping:
        return None
    name = str(found[0].get("name"))
    return NetworkFault(conditions.NETWORK_NOT_READY, f"interface {name}: {observed.passt_problem}; restarting it")

"""Faults of the server that tells the guest its addresses, as the condition ``NetworkReady`` and Events. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions
from handler.reconcilers.guests.guest_status import NetworkFault
from launcher.protocol import messages

MAX_CAUSE: Final = 256
GOES_ON: Final = "a guest that has its address goes on; one that asks for it gets no answer until then"


def fault(observed: messages.Status) -> NetworkFault | None:
    """Return why nobody tells the guest its addresses, where the server died and cannot be started again."""
    dhcp = observed.dhcp
    if not dhcp.problem or observed.stopping:
        return None
    cause, problem = one_line(dhcp.cause, MAX_CAUSE), one_line(dhcp.problem, MAX_CAUSE)
    return NetworkFault(
        conditions.DHCP_NOT_SERVED, f"the guest's DHCP server died ({cause}) and does not start again: {problem}; {GOES_ON}"
    )


def with_restarts(vm: Object, status: Object, observed: messages.Status, now: datetime) -> Object:
    """Return the status that says that the server was started again in this pod; of one that never was as it is.

    Args:
        vm: the machine as it is stored.
        status: what is about to be written, with every fault of the network.
        observed: what its launcher says.
        now: the time.
    """
    known, dhcp = objects.condition(status.get("conditions"), conditions.NETWORK_READY), observed.dhcp
    if known is not None and known.get("status") == "False":
        return status
    if dhcp.restarts <= 0:
        if known is None or known.get("reason") != conditions.DHCP_RESTARTED:
            return status  # else the guest moved, and this pod's server is another one
        reason, message = "Ready", ""
    else:
        often, cause = "once" if dhcp.restarts == 1 else f"{dhcp.restarts} times", one_line(dhcp.cause, MAX_CAUSE)
        message = f"the guest's DHCP server died and was started again, {often} in this pod; the last time: {cause}"
        reason = conditions.DHCP_RESTARTED
    told = objects.new_condition(vm, conditions.NETWORK_READY, "True", reason, message)
    return objects.with_status_condition(status, told, now=times.to_rfc3339(now))


def news(vm: Object, status: Object) -> tuple[str, str] | None:
    """Return (reason, message) of an Event where the condition has come to tell of the server, and says another thing than before."""
    before, after = (objects.condition(each.get("conditions"), conditions.NETWORK_READY) or {} for each in (vm.get("status") or {}, status))
    reason, message = str(after.get("reason")), str(after.get("message"))
    said = (before.get("reason"), before.get("message"))
    is_news = reason in (conditions.DHCP_NOT_SERVED, conditions.DHCP_RESTARTED) and (reason, message) != said
    return (reason, message) if is_news else None

"""Give a pod the networks that its guest needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt import attachments
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import interfaces
from handler.network import attached, binding, bridged, filters, masquerade, namespaces
from handler.network.binding import Binding, Interface, Observed, Plan, Port, Unsupported, Wanted
from handler.network.macs import mac_address
from handler.pods.process import Launcher

BINDINGS: Final[Mapping[str, Binding]] = {"masquerade": masquerade.plan, "bridge": bridged.plan}
"""To the pod's own network, by type of the interface."""
FURTHER: Final[Mapping[str, Binding]] = {"bridge": attached.plan, interfaces.SRIOV: attached.plan_card}
"""To further networks, by type of the interface."""


def wanted(vm: Mapping[str, Any]) -> tuple[Wanted, ...]:
    """Return the interfaces of ``spec.domain.devices.interfaces``, in order.

    Raises:
        Unsupported: more than one is on the pod's own network, or one has a network or a MAC address that it cannot have.
    """
    defaulted = interfaces.defaulted(domain_of(vm))
    if sum(not each.get("network") for each in defaulted) > 1:
        raise Unsupported("a pod has one network of its own: more than one interface cannot be joined to it")
    networks = {each.interface: str(each) for each in attachments.of(vm)}
    return tuple(_wanted(vm, each, networks.get(each["name"], "")) for each in defaulted)


def _wanted(vm: Mapping[str, Any], interface: Mapping[str, Any], network: str) -> Wanted:
    name, given = interface["name"], interface.get("mac") or ""
    if interface.get("network") and not network:
        raise Unsupported(f"interface {name}: {str(interface['network'])[:80]!r} is no network that a pod may have")
    found = Wanted(
        name=name,
        type=interface["type"],
        mac=mac_address(vm["metadata"]["uid"], name, given) if given or network or interface["type"] != "bridge" else "",
        model=interface.get("model", ""),
        queues=interfaces.queues(domain_of(vm), interface.get("model", "")),
        ports=_ports(interface),
    )
    if not network:
        return found
    link, bridge, tap = attachments.link(name), attachments.bridge(name), attachments.tap(name)
    return dataclasses.replace(found, network=network, uplink=link, bridge=bridge, tap=tap)


def _ports(interface: Mapping[str, Any]) -> tuple[Port, ...] | None:
    given = interfaces.ports(interface)
    return None if given is None else tuple(Port(each["protocol"], each["port"]) for each in given)


def plans(vm: Mapping[str, Any], observed: Observed) -> tuple[Plan, ...]:
    """Return what is to be done for each interface of ``vm``, in order.

    Raises:
        Unsupported: one of them cannot be as the machine asks.
    """
    return tuple(_plan(each, observed) for each in wanted(vm))


def _plan(interface: Wanted, observed: Observed) -> Plan:
    found = (FURTHER if interface.network else BINDINGS).get(interface.type)
    if found is None:
        raise Unsupported(f"interface {interface.name}: type {interface.type} is not known to this virt-handler")
    return found(interface, observed)


async def prepare(vm: Mapping[str, Any], launcher: Launcher) -> tuple[Interface, ...]:
    """Set up the pod's networks for ``vm`` and return the guest's interfaces; harmless when it is done again.

    Raises:
        Unsupported: a network cannot be as the VM asks, or this node cannot keep the guest to its addresses, now or ever.
        CommandFailed: a program failed; try again.
    """
    asked = wanted(vm)
    if not asked:
        return ()
    planned = plans(vm, await _observe(launcher, in_detail=any(each.type == "bridge" and not each.network for each in asked)))
    for plan in planned:
        if plan.script:
            await _carry_out(plan, launcher)
    return tuple(plan.interface for plan in planned)


async def _observe(launcher: Launcher, *, in_detail: bool) -> Observed:
    addresses = await namespaces.links(launcher.network)
    if not in_detail:
        return binding.observe(addresses)
    return binding.observe(addresses, await namespaces.routes(launcher.network), await namespaces.aliases(launcher.network))


async def _carry_out(plan: Plan, launcher: Launcher) -> None:
    try:
        await namespaces.run(launcher.network, ("sh", "-c", plan.script))
    except namespaces.CommandFailed as error:
        if error.status == binding.NO_FILTER and filters.is_not_in_this_kernel(str(error)):
            needed = ", ".join(filters.KERNEL_OPTIONS)
            raise Unsupported(f"this node cannot keep a guest to its own addresses; its kernel needs {needed}: {error}") from error
        raise

"""Give a pod the network that its guest needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.apis.virt import network
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import interfaces
from handler.network import filters, masquerade, namespaces
from handler.pods.process import Launcher


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of the guest, wired."""

    name: str
    mac: str
    tap: str
    model: str
    addresses: tuple[str, ...]
    """By which others reach the guest: the pod's."""


def wanted(vm: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the one interface of ``spec.domain.devices.interfaces``, or None for a guest without network.

    Raises:
        Unsupported: more than one, or another type than masquerade.
    """
    defaulted = interfaces.defaulted(domain_of(vm))
    if not defaulted:
        return None
    if len(defaulted) > 1:
        raise masquerade.Unsupported("a pod has one network: more than one interface cannot be served")
    if (kind := defaulted[0]["type"]) != "masquerade":
        raise masquerade.Unsupported(f"interface {defaulted[0].get('name')}: type {kind} is not known to this virt-handler")
    return defaulted[0]


async def prepare(vm: Mapping[str, Any], launcher: Launcher) -> tuple[Interface, ...]:
    """Set up the pod's network for ``vm`` and return the guest's interfaces; harmless when it is done again.

    Raises:
        Unsupported: the network cannot be as the VM asks, or this node cannot keep the guest to its addresses, now or ever.
        CommandFailed: a program failed; try again.
    """
    interface = wanted(vm)
    if interface is None:
        return ()
    mac = masquerade.mac_address(vm["metadata"]["uid"], interface["name"], interface.get("mac") or "")
    queues = interfaces.queues(vm["spec"]["domain"], interface["model"])
    observed = masquerade.observe(await namespaces.links(launcher.network))
    try:
        await namespaces.run(launcher.network, ("sh", "-c", masquerade.script(observed, mac, queues=queues)))
    except namespaces.CommandFailed as error:
        if error.status == masquerade.NO_FILTER and filters.is_not_in_this_kernel(str(error)):
            needed = ", ".join(filters.KERNEL_OPTIONS)
            raise masquerade.Unsupported(
                f"this node cannot keep a guest to its own addresses; its kernel needs {needed}: {error}"
            ) from error
        raise
    return (Interface(interface["name"], mac, network.TAP, interface["model"], observed.addresses),)

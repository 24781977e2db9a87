"""Give a pod the network that its guest needs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.virt import hardware
from handler.network import masquerade, namespaces
from handler.network.dhcp import Servers
from handler.pods import opening
from handler.pods.process import Launcher

_RESOLV_CONF: Final = "etc/resolv.conf"
_RESOLV_CONF_BYTES: Final = 16 << 10


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
    interfaces = hardware.interfaces(vm["spec"]["domain"])
    if not interfaces:
        return None
    if len(interfaces) > 1:
        raise masquerade.Unsupported("a pod has one network: more than one interface cannot be served")
    if (kind := interfaces[0]["type"]) != "masquerade":
        raise masquerade.Unsupported(f"interface {interfaces[0].get('name')}: type {kind} is not known to this virt-handler")
    return interfaces[0]


async def prepare(vm: Mapping[str, Any], pod_uid: str, launcher: Launcher, servers: Servers) -> tuple[Interface, ...]:
    """Set up the pod's network for ``vm`` and return the guest's interfaces; harmless when it is done again.

    Raises:
        Unsupported: the network cannot be as the VM asks, now or ever.
        CommandFailed: a program failed; try again.
    """
    interface = wanted(vm)
    if interface is None:
        return ()
    namespace = launcher.network
    observed = masquerade.observe(await namespaces.links(namespace))
    await namespaces.run(namespace, ("ip", "-batch", "-"), stdin=masquerade.link_commands(observed))
    await namespaces.run(namespace, ("nft", "-f", "-"), stdin=masquerade.table())
    for key, value in masquerade.SETTINGS:
        # tee opens the file inside the namespace: /proc/sys/net shows that of whoever looks.
        await namespaces.run(namespace, ("tee", f"/proc/sys/{key}"), stdin=value)
    dns = masquerade.Resolver()
    with contextlib.suppress(OSError):
        dns = masquerade.resolver(opening.read_file(launcher.root, _RESOLV_CONF, _RESOLV_CONF_BYTES).decode(errors="replace"))
    uid, name = vm["metadata"]["uid"], vm["metadata"]["name"]
    mac = masquerade.mac_address(uid, interface["name"], interface.get("mac") or "")
    command = masquerade.dnsmasq(mac, hostname=name, dns=dns, mtu=observed.uplink_mtu, pid_file=servers.pid_file(pod_uid))
    await servers.ensure(pod_uid, namespace, command)
    return (Interface(interface["name"], mac, masquerade.TAP, interface["model"], observed.addresses),)

"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, required
from apiserver.apis.virt.hardware import disks, host_devices, network_disks
from apiserver.apis.virt.hardware import interfaces as hardware
from apiserver.apis.virt.places import network
from apiserver.apis.virt.places.network import EXAMPLE_MAC
from apiserver.apis.virt.spec import attachments
from apiserver.apis.virt.v1alpha1.domain.plugins import validate_plugin
from apiserver.apis.virt.v1alpha1.domain.rules import (
    Object,
    validate_between,
    validate_count,
    validate_device_name,
    validate_host_device,
    validate_unique,
)

MAX_PORTS: Final = 64

_PORT_NAME: Final = re.compile(r"(?=.{1,15}$)(?=[^a-z]*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]*[a-z0-9])?")
"""Service names, as for a container's ports (RFC 6335, section 5.1)."""


class Port(Model):
    """A reachable port of the guest."""

    name: str | None = Field(None, description="The port's name in the pod, for Services: at most 15 of a-z, 0-9 and -.")
    port: Int32 = Field(description="The number, 1 to 65535: the same at the pod's address and in the guest.")
    protocol: Literal["TCP", "UDP"] | None = Field(None, description="Default TCP.")


class Interface(Model):
    """One network interface of the guest."""

    name: str = Field(description="Its name, unique in the machine.")
    type: Literal["masquerade", "bridge", "macvtap", "sriov", "plugin", "passt"] | None = Field(
        None,
        description="How the guest is connected. masquerade (the default on the pod's own): the guest has a private address behind the "
        "pod's, for IPv4, IPv6 or both, as the pod has; traffic to the pod's address reaches the guest. bridge (the default on further "
        "networks): the guest is on the network's own layer 2, with its MAC address. DHCP gives it the IPv4 address that IPAM gave to the "
        "pod (such a machine does not migrate live); the guest may add other addresses. bridge on the pod's own: the guest takes over "
        "the pod's IP addresses and MAC address; such a machine does not migrate live. passt, on the pod's own: the guest gets the pod's "
        "IPv4 and IPv6 addresses, and a process of the pod makes or accepts each connection; it needs ports, and such a machine does not "
        "migrate live. macvtap, on a further network: like bridge, but without a bridge in the pod, so the pod's link may be a macvlan of "
        "the node's card. The network must have no IPAM, and the cluster's administrator must allow macvtap. sriov: the guest has a card "
        "of the node, on a further network. plugin: a plugin on the node connects it.",
    )
    network: str | None = Field(
        None,
        description="A further network of the pod: the name of a NetworkAttachmentDefinition of the machine's namespace, or default/NAME. "
        "The nodes need a plugin such as Multus. Default: the pod's own network.",
    )
    device_name: str | None = Field(
        None,
        description="Type sriov: the resource of an SR-IOV device plugin, such as intel.com/sriov; the NetworkAttachmentDefinition names "
        "the same one. The machine runs on a node with a free card, and does not migrate. The plugin names the card in the variable "
        "PCIDEVICE_INTEL_COM_SRIOV of the container.",
    )
    plugin: str | None = Field(
        None,
        description="Type plugin: the plugin's name. The cluster's administrator lists the plugins. The plugin's documentation says what "
        "it does and whether the machine can migrate live.",
    )
    options: dict[str, str] | None = Field(
        None, description="Type plugin: options for the plugin, at most 32 of at most 1024 bytes; see the plugin's documentation."
    )
    model: Literal["virtio", "e1000", "e1000e", "rtl8139"] | None = Field(None, description="The emulated card. Default virtio.")
    mac: str | None = Field(None, description=f"The card's address, like {EXAMPLE_MAC}. Default: computed from the machine's uid.")
    ports: list[Port] | None = Field(
        None,
        description="Types masquerade and passt: ports of the pod's address that lead to the guest; no other traffic reaches it. They are "
        "also ports of the pod's container. Required for type passt. Default: all ports; [] means none.",
        json_schema_extra=ATOMIC,
    )
    state: Literal["up", "down"] | None = Field(
        None, description="Link state of the card, as the guest sees it. A running guest takes an edit. Default up."
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.interfaces``, below ``path``."""
    interfaces, path = hardware.defaulted(domain), path.child("devices", "interfaces")
    found = validate_count(interfaces, hardware.MAX_INTERFACES, path)
    for position, interface in enumerate(interfaces):
        found += _validate_interface(interface, path.index(position))
    found += validate_unique(interfaces, "name", path) + validate_unique(interfaces, "mac", path)
    found += _validate_device_names(domain, path) + _validate_place(domain, path) + _validate_passt(interfaces, path)
    return found + _validate_one_on_pods_network(interfaces, path)


def _validate_one_on_pods_network(interfaces: Sequence[Object], path: Path) -> list[FieldError]:
    first, *others = [each for each in enumerate(interfaces) if hardware.is_on_pods_network(each[1])] or [(0, {})]
    message = f"only one interface can use the pod's network, and {path.index(first[0])} already does: name another network"
    return [forbidden(path.index(position).child("network"), message) for position, _ in others]


def _validate_interface(interface: Object, path: Path) -> list[FieldError]:
    found = validate_device_name(interface.get("name") or "", path.child("name"))
    mac = interface.get("mac")
    if mac and (problem := network.mac_problem(mac)):
        found.append(invalid(path.child("mac"), mac, problem))
    found += _validate_network(interface, path) + _validate_ports(interface, path.child("ports"))
    return found + validate_plugin(interface, path, of_type=hardware.PLUGIN)


def _validate_device_names(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``deviceName`` and ``state`` of cards. SR-IOV cards share no resource: their networks would be indistinguishable."""
    found: list[FieldError] = []
    others = {each.get("deviceName") for place, each in host_devices.passed_through(domain).items() if ".interfaces[" not in place}
    for position, each in enumerate(hardware.defaulted(domain)):
        place, given = path.index(position), each.get("deviceName")
        if each["type"] == hardware.SRIOV:
            found += [error for error in validate_host_device(each, place) if error.path.endswith(".deviceName")]
            found += [duplicate(place.child("deviceName"), given)] if given in others else []
            others.add(given)
            found += (
                [forbidden(place.child("state"), "may not be set for type sriov, because the node sets the link state")]
                if each.get("state")
                else []
            )
        elif given is not None:
            found.append(forbidden(place.child("deviceName"), "may be set only for type sriov"))
    return found


def _validate_network(interface: Object, path: Path) -> list[FieldError]:
    given, kind = interface.get("network"), interface["type"]
    if given is None:
        own = ("masquerade", "bridge", hardware.PLUGIN, hardware.PASST)
        return [] if kind in own else [forbidden(path.child("type"), f"type {kind} requires a further network: set network")]
    found = [invalid(path.child("network"), given, problem)] if (problem := attachments.problem(given)) else []
    if kind == hardware.SRIOV and interface.get("model") is not None:
        found.append(forbidden(path.child("model"), "may not be set for type sriov, because the card belongs to the node"))
    if kind == "masquerade":
        found.append(forbidden(path.child("type"), "may not be masquerade with network: only the pod's own network can be masqueraded"))
    if kind == hardware.PASST:
        found.append(forbidden(path.child("type"), "may not be passt with network: passt supports only the pod's own network"))
    return found


def _validate_place(domain: Object, path: Path) -> list[FieldError]:
    reached = next((each for each in disks.defaulted(domain) if network_disks.is_network(each)), None)
    return [
        forbidden(
            path.index(position).child("type"), f"type bridge takes the pod's address, which QEMU needs for disk {reached.get('name')}"
        )
        for position, each in enumerate(hardware.defaulted(domain))
        if reached is not None and hardware.takes_place_of_pod(each)
    ]


def _validate_passt(interfaces: Sequence[Object], path: Path) -> list[FieldError]:
    """Return errors in passt interfaces. ``ports`` must be explicit, because each port takes a socket of the pod."""
    found: list[FieldError] = []
    for position, each in enumerate(interfaces):
        place = path.index(position)
        if each["type"] != hardware.PASST:
            continue
        if each["model"] != "virtio":
            found.append(forbidden(place.child("model"), "type passt requires model virtio"))
        if each.get("state") is not None:
            found.append(forbidden(place.child("state"), "may not be set for type passt, which has no link state"))
        if hardware.ports(each) is None:
            found.append(required(place.child("ports"), "of type passt; [] means none"))
    return found


def _validate_ports(interface: Object, path: Path) -> list[FieldError]:
    ports = hardware.ports(interface)
    if ports is None:
        return []
    if interface["type"] not in ("masquerade", hardware.PASST):
        return [forbidden(path, "may be set only for types masquerade and passt")]
    found = validate_count(ports, MAX_PORTS, path)
    seen = set()
    for position, each in enumerate(ports):
        place, name, port = path.index(position), each.get("name"), each.get("port")
        if port is not None:
            found += validate_between(port, 1, 65535, place.child("port"))
        if name is not None and not _PORT_NAME.fullmatch(name):
            found.append(
                invalid(
                    place.child("name"),
                    name,
                    "must be 1 to 15 of a-z, 0-9 and single -, with at least one letter, and no - at the start or end",
                )
            )
        if port is not None and (port, each["protocol"]) in seen:
            found.append(duplicate(place, f"{port}/{each['protocol']}"))
        seen.add((port, each["protocol"]))
    return found + validate_unique(ports, "name", path)

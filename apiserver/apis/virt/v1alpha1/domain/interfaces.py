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
"""As for the ports of a container, which are service names (RFC 6335, section 5.1)."""


class Port(Model):
    """A reachable port of the guest."""

    name: str | None = Field(None, description="Its name in the pod, by which a Service can mean it: at most 15 of a-z, 0-9 and -.")
    port: Int32 = Field(description="The number, 1 to 65535: the same at the pod's address and in the guest.")
    protocol: Literal["TCP", "UDP"] | None = Field(None, description="Default TCP.")


class Interface(Model):
    """One network interface of the guest."""

    name: str = Field(description="Its name, unique in the machine.")
    type: Literal["masquerade", "bridge", "macvtap", "sriov", "plugin", "passt"] | None = Field(
        None,
        description="Way in which it is joined to its network. masquerade (the default on the pod's own): the guest has a private address "
        "behind the pod's, of IPv4, IPv6 or both as the pod has them, and what reaches the pod's address reaches the guest. bridge (the "
        "default on further networks): the guest is on the network's own layer 2, with its MAC address; an IPv4 address that IPAM gave to "
        "the pod there it is told by DHCP (such a machine does not migrate live), and which others it has is its own business. bridge on "
        "the pod's own: the guest has the pod's IP addresses and MAC address, and the pod has none; such a machine does not migrate live. "
        "passt, on the pod's own: the guest is told the pod's addresses, IPv4 and IPv6, and each of its connections is one that a process "
        "of the pod makes, or takes; ports has to be said, and such a machine does not migrate live. macvtap, on a further network: as "
        "bridge, without a bridge in the pod, so that the pod's link may be a macvlan of the node's card; the network may have no IPAM, "
        "and the administrator of the cluster has to allow macvtaps. sriov: the guest has a card of the node, on a further network. "
        "plugin: a plugin of the node joins it.",
    )
    network: str | None = Field(
        None,
        description="A further network of the pod: the name of a NetworkAttachmentDefinition of the machine's namespace, or default/NAME. "
        "The nodes need a plugin such as Multus. Default: the pod's own network.",
    )
    device_name: str | None = Field(
        None,
        description="Of type sriov: the resource that an SR-IOV device plugin offers on nodes, such as intel.com/sriov, the same that the "
        "NetworkAttachmentDefinition names; the machine runs where one is free, and does not migrate. The plugin names the card in the "
        "variable PCIDEVICE_INTEL_COM_SRIOV of the container.",
    )
    plugin: str | None = Field(
        None,
        description="Of type plugin: which. The cluster's administrator says which plugins there are; what one does, and whether a machine "
        "with it migrates live, it says itself.",
    )
    options: dict[str, str] | None = Field(
        None, description="Of type plugin: what the plugin is told, at most 32 options of at most 1024 bytes. What it knows it says itself."
    )
    model: Literal["virtio", "e1000", "e1000e", "rtl8139"] | None = Field(None, description="The emulated card. Default virtio.")
    mac: str | None = Field(None, description=f"The card's address, like {EXAMPLE_MAC}. Default: one that follows from the machine's uid.")
    ports: list[Port] | None = Field(
        None,
        description="Of types masquerade and passt: the ports at the pod's address by which others reach the guest; everything else that "
        "comes to the pod stays outside of it. They are the ports of the pod's container, too. Required of type passt. "
        "Default: all ports; [] means none.",
        json_schema_extra=ATOMIC,
    )
    state: Literal["up", "down"] | None = Field(None, description="State of the card's link, up or down, as the guest sees it. Default up.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return the errors of ``devices.interfaces``."""
    interfaces, path = hardware.defaulted(domain), path.child("devices", "interfaces")
    found = validate_count(interfaces, hardware.MAX_INTERFACES, path)
    for position, interface in enumerate(interfaces):
        found += _validate_interface(interface, path.index(position))
    found += validate_unique(interfaces, "name", path) + validate_unique(interfaces, "mac", path)
    found += _validate_device_names(domain, path) + _validate_place(domain, path) + _validate_passt(interfaces, path)
    return found + _validate_one_on_pods_network(interfaces, path)


def _validate_one_on_pods_network(interfaces: Sequence[Object], path: Path) -> list[FieldError]:
    first, *others = [each for each in enumerate(interfaces) if hardware.is_on_pods_network(each[1])] or [(0, {})]
    message = f"only one interface can be joined to the pod's network, and {path.index(first[0])} is: name another network"
    return [forbidden(path.index(position).child("network"), message) for position, _ in others]


def _validate_interface(interface: Object, path: Path) -> list[FieldError]:
    found = validate_device_name(interface.get("name") or "", path.child("name"))
    mac = interface.get("mac")
    if mac and (problem := network.mac_problem(mac)):
        found.append(invalid(path.child("mac"), mac, problem))
    found += _validate_network(interface, path) + _validate_ports(interface, path.child("ports"))
    return found + validate_plugin(interface, path, of_type=hardware.PLUGIN)


def _validate_device_names(domain: Object, path: Path) -> list[FieldError]:
    """Return the errors of cards' resources. Two cards may not share one, because their networks could not be told apart."""
    found: list[FieldError] = []
    others = {each.get("deviceName") for place, each in host_devices.passed_through(domain).items() if ".interfaces[" not in place}
    for position, each in enumerate(hardware.defaulted(domain)):
        place, given = path.index(position), each.get("deviceName")
        if each["type"] == hardware.SRIOV:
            found += [error for error in validate_host_device(each, place) if error.path.endswith(".deviceName")]
            found += [duplicate(place.child("deviceName"), given)] if given in others else []
            others.add(given)
            found += (
                [forbidden(place.child("state"), "may not be set for type sriov: the cable is the node's")] if each.get("state") else []
            )
        elif given is not None:
            found.append(forbidden(place.child("deviceName"), "may be set for type sriov only"))
    return found


def _validate_network(interface: Object, path: Path) -> list[FieldError]:
    given, kind = interface.get("network"), interface["type"]
    if given is None:
        own = ("masquerade", "bridge", hardware.PLUGIN, hardware.PASST)
        return [] if kind in own else [forbidden(path.child("type"), f"type {kind} needs a further network: set network, too")]
    found = [invalid(path.child("network"), given, problem)] if (problem := attachments.problem(given)) else []
    if kind == hardware.SRIOV and interface.get("model") is not None:
        found.append(forbidden(path.child("model"), "may not be set for type sriov: the card is the node's"))
    if kind == "masquerade":
        found.append(forbidden(path.child("type"), "may not be masquerade beside network: only the pod's own network can be masqueraded"))
    if kind == hardware.PASST:
        found.append(forbidden(path.child("type"), "may not be passt beside network: passt has the pod's own network only"))
    return found


def _validate_place(domain: Object, path: Path) -> list[FieldError]:
    """Return interfaces that leave the pod no address although QEMU needs one."""
    reached = next((each for each in disks.defaulted(domain) if network_disks.is_network(each)), None)
    return [
        forbidden(
            path.index(position).child("type"), f"bridge leaves the pod no address, by which QEMU could reach disk {reached.get('name')}"
        )
        for position, each in enumerate(hardware.defaulted(domain))
        if reached is not None and hardware.takes_place_of_pod(each)
    ]


def _validate_passt(interfaces: Sequence[Object], path: Path) -> list[FieldError]:
    """Return the errors of interfaces of type passt, which supports only virtio cards and needs a socket of the pod for each port."""
    found: list[FieldError] = []
    for position, each in enumerate(interfaces):
        place = path.index(position)
        if each["type"] != hardware.PASST:
            continue
        if each["model"] != "virtio":
            found.append(forbidden(place.child("model"), "type passt is for model virtio only"))
        if each.get("state") is not None:
            found.append(forbidden(place.child("state"), "may not be set for type passt: the cable is plugged in while passt runs"))
        if hardware.ports(each) is None:
            found.append(required(place.child("ports"), "of type passt: each is a socket of the pod; [] means none"))
    return found


def _validate_ports(interface: Object, path: Path) -> list[FieldError]:
    ports = hardware.ports(interface)
    if ports is None:
        return []
    if interface["type"] not in ("masquerade", hardware.PASST):
        return [forbidden(path, "may be set for types masquerade and passt only")]
    found = validate_count(ports, MAX_PORTS, path)
    seen = set()
    for position, each in enumerate(ports):
        place, name, port = path.index(position), each.get("name"), each.get("port")
        if port is not None:
            found += validate_between(port, 1, 65535, place.child("port"))
        if name is not None and not _PORT_NAME.fullmatch(name):
            found.append(invalid(place.child("name"), name, "must be 1 to 15 of a-z, 0-9 and single -, with a letter, and no - at an end"))
        if port is not None and (port, each["protocol"]) in seen:
            found.append(duplicate(place, f"{port}/{each['protocol']}"))
        seen.add((port, each["protocol"]))
    return found + validate_unique(ports, "name", path)

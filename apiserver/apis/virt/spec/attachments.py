"""Further networks of a machine's pod: NetworkAttachmentDefinitions.

They follow the Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3, which Multus implements. A guest's interface
names one in ``network``. virt-controller writes the pod's annotation, the node's CNI plugin gives the pod a link with our name and MAC
address, and virt-handler joins the guest to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta import names
from apiserver.apis.meta.objects import namespace_of, uid_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec.described import domain_of

NETWORK_ATTACHMENT_DEFINITIONS: Final = Resource("k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition")
ANNOTATION: Final = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK_ANNOTATION: Final = "v1.multus-cni.io/default-network"
"""Replaces the pod's own network. Pods of machines never have it."""
COMMON_NAMESPACE: Final = "default"
"""All pods may use its networks if Multus isolates namespaces."""
_DIGITS: Final = 10
"""Link names have at most 14 characters (IFNAMSIZ is 16 with the final zero)."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A further network of the pod, for one interface of the guest."""

    position: int
    """In ``devices.interfaces``."""
    interface: str
    namespace: str
    name: str
    """The NetworkAttachmentDefinition's."""
    mac: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def problem(given: str) -> str:
    """Return why a text is not a network's name, ``NAME`` or ``default/NAME``, or ""."""
    namespace, slash, name = given.rpartition("/")
    if names.label_errors(name) or (slash and namespace != COMMON_NAMESPACE):
        return (
            "must be the name of a NetworkAttachmentDefinition in the machine's namespace (a DNS-1123 label, as Multus requires), or "
            f"{COMMON_NAMESPACE}/NAME; networks of other namespaces are not allowed"
        )
    return ""


def of(vm: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Return an ``Attachment`` per further network, in the order of the machine's interfaces; invalid network names are left out."""
    return tuple(_of(vm))


def _of(vm: Mapping[str, Any]) -> Iterator[Attachment]:
    for position, each in enumerate(interfaces.defaulted(domain_of(vm))):
        given = each.get("network")
        if not isinstance(given, str) or problem(given):
            continue
        namespace, _, name = given.rpartition("/")
        yield Attachment(position, each["name"], namespace or namespace_of(vm), name, mac_address(uid_of(vm), each))


def mac_address(vm_uid: str, interface: Mapping[str, Any]) -> str:
    """Return an interface's MAC address: the specified one if valid, else one derived from the machine's uid."""
    given = interface.get("mac")
    if isinstance(given, str) and given and not network.mac_problem(given):
        return network.normal_mac(given)
    return network.derived_mac(vm_uid, interface["name"])


def pod_annotations(vm: Mapping[str, Any], coming: Collection[str] = ()) -> dict[str, str]:
    """Return the pod's annotations for Multus; empty without further networks.

    ``coming``: names of interfaces that the running guest may get; :func:`link_of_network` names their links.
    """
    found = [
        {
            "name": each.name,
            "namespace": each.namespace,
            "interface": link_of_network(each.interface, str(each)) if each.interface in coming else link(each.interface),
            "mac": each.mac,
        }
        for each in of(vm)
    ]
    return {ANNOTATION: json.dumps(found)} if found else {}


def link(interface: str) -> str:
    """Return the name of an interface's link in the pod, unless it is hot-plugged (:func:`link_of_network`)."""
    return f"net{_hash(interface)}"


def link_of_network(interface: str, network: str) -> str:
    """Return a hot-plugged interface's link name in the pod, which differs by network (``namespace/name``): edits can change that."""
    return f"net{_hash(f'{interface} {network}')}"


def tap(interface: str) -> str:
    """Return the name of an interface's tap."""
    return f"tap{_hash(interface)}"


def bridge(interface: str) -> str:
    """Return the name of the bridge between link and tap."""
    return f"k6t-{_hash(interface)}"


def _hash(interface: str) -> str:
    return hashlib.sha256(interface.encode()).hexdigest()[:_DIGITS]


def excess(vm: Mapping[str, Any], pod: Mapping[str, Any]) -> list[str]:
    """Return, as messages, what the pod's annotations request beyond the machine's networks."""
    asked = (pod.get("metadata") or {}).get("annotations") or {}
    found = [f"annotation {DEFAULT_NETWORK_ANNOTATION}"] if DEFAULT_NETWORK_ANNOTATION in asked else []
    if not _named(asked.get(ANNOTATION)) <= {(each.namespace, each.name) for each in of(vm)}:
        found.append(f"annotation {ANNOTATION} names other networks than the virtual machine")
    return found


def _named(annotation: object) -> set[tuple[str, str]]:
    if annotation is None:
        return set()
    try:
        listed = json.loads(str(annotation))
    except (ValueError, RecursionError):
        return {("", "")}
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        return {("", "")}
    return {(str(each.get("namespace") or ""), str(each.get("name") or "")) for each in listed}

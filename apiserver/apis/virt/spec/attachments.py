"""Further networks of a machine's pod: NetworkAttachmentDefinitions. Pure.

They and the annotation are those of the Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3, which Multus follows.
An interface of the guest names one by ``network``. virt-controller writes the pod's annotation, from which the nodes' CNI plugin gives the
pod a link with a name and a MAC address of ours, and virt-handler joins the guest to that link.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
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
"""Of a pod: the networks that it is to have beside its own."""
DEFAULT_NETWORK_ANNOTATION: Final = "v1.multus-cni.io/default-network"
"""Of a pod: what it is to have instead of its own network. No pod of a machine has this."""
COMMON_NAMESPACE: Final = "default"
"""Namespace whose networks pods of every namespace may have, where Multus isolates namespaces."""
_DIGITS: Final = 10
"""Of a hash, so that names of links have at most 14 characters (IFNAMSIZ is 16, its last byte a zero)."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A network that one interface of the machine names."""

    position: int
    """Of the interface in ``devices.interfaces``."""
    interface: str
    """Its name."""
    namespace: str
    name: str
    """Of the NetworkAttachmentDefinition."""
    mac: str
    """The guest's."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def problem(given: str) -> str:
    """Return what keeps a text from naming a network, or an empty string: ``NAME``, or ``default/NAME``."""
    namespace, slash, name = given.rpartition("/")
    if names.label_errors(name) or (slash and namespace != COMMON_NAMESPACE):
        return (
            "must be the name of a NetworkAttachmentDefinition of the machine's own namespace (a DNS-1123 label, which Multus asks for), "
            f"or {COMMON_NAMESPACE}/NAME; pods get no networks of other namespaces"
        )
    return ""


def of(vm: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Return the networks of a machine beside its pod's own, in the order of its interfaces; what names none is left out."""
    return tuple(_of(vm))


def _of(vm: Mapping[str, Any]) -> Iterator[Attachment]:
    for position, each in enumerate(interfaces.defaulted(domain_of(vm))):
        given = each.get("network")
        if not isinstance(given, str) or problem(given):
            continue
        namespace, _, name = given.rpartition("/")
        yield Attachment(position, each["name"], namespace or namespace_of(vm), name, mac_address(uid_of(vm), each))


def mac_address(vm_uid: str, interface: Mapping[str, Any]) -> str:
    """Return the MAC address of an interface: the one given, where a guest may have it, else the one that follows from the machine."""
    given = interface.get("mac")
    if isinstance(given, str) and given and not network.mac_problem(given):
        return network.normal_mac(given)
    return network.derived_mac(vm_uid, interface["name"])


def pod_annotations(vm: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of the machine's pod; none for a machine that has its pod's own network alone."""
    found = [{"name": each.name, "namespace": each.namespace, "interface": link(each.interface), "mac": each.mac} for each in of(vm)]
    return {ANNOTATION: json.dumps(found)} if found else {}


def link(interface: str) -> str:
    """Return the name of the link that the pod has for an interface: always the same, whatever other interfaces there are."""
    return f"net{_hash(interface)}"


def tap(interface: str) -> str:
    """Return the name of the guest's tap."""
    return f"tap{_hash(interface)}"


def bridge(interface: str) -> str:
    """Return the name of the bridge that joins the two."""
    return f"k6t-{_hash(interface)}"


def _hash(interface: str) -> str:
    return hashlib.sha256(interface.encode()).hexdigest()[:_DIGITS]


def excess(vm: Mapping[str, Any], pod: Mapping[str, Any]) -> list[str]:
    """Return what the pod's annotations ask for beyond the machine's networks, in words."""
    asked = (pod.get("metadata") or {}).get("annotations") or {}
    found = [f"annotation {DEFAULT_NETWORK_ANNOTATION}"] if DEFAULT_NETWORK_ANNOTATION in asked else []
    if not _named(asked.get(ANNOTATION)) <= {(each.namespace, each.name) for each in of(vm)}:
        found.append(f"networks other than the virtual machine names, in annotation {ANNOTATION}")
    return found


def _named(annotation: object) -> set[tuple[str, str]]:
    """Return (namespace, name) of the networks in an annotation as this module writes it; one with empty words for anything else."""
    if annotation is None:
        return set()
    try:
        listed = json.loads(str(annotation))
    except (ValueError, RecursionError):
        return {("", "")}
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        return {("", "")}
    return {(str(each.get("namespace") or ""), str(each.get("name") or "")) for each in listed}

"""Fields that machines may use only if the administrator allows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, not_supported
from apiserver.apis.virt.hardware import disks, host_disks, interfaces, plugin_disks, vsock
from apiserver.apis.virt.v1alpha1.domain.rules import Object


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the administrator lets machines use, from flags of virt-api; by default nothing."""

    vsock: bool = False
    """Connects every process of a node with every guest there, across namespaces."""
    macvtap: bool = False
    """Nodes offer macvtap devices to every pod."""
    storage_plugins: frozenset[str] = frozenset()
    """For disks; they work as root on the nodes."""
    host_disks: tuple[str, ...] = ()
    """Node directories with files for disks; users who can create machines can read and write these."""
    network_plugins: frozenset[str] = frozenset()
    """Plugins of ``devices.interfaces`` of type plugin."""


NOTHING: Final = Allowed()


def validate(spec: Object, path: Path, allowed: Allowed, namespace: str = "") -> list[FieldError]:
    """Return errors for fields of a machine's spec, at ``path``, that this cluster does not allow; ``namespace`` is the machine's."""
    domain, path = spec.get("domain") or {}, path.child("domain", "devices")
    found = _validate_vsock(domain, path, allowed) + _validate_macvtaps(domain, path, allowed)
    found += _validate_storage_plugins(domain, path, allowed)
    return found + _validate_network_plugins(domain, path, allowed) + _validate_host_disks(domain, path, allowed, namespace)


def _validate_vsock(domain: Object, path: Path, allowed: Allowed) -> list[FieldError]:
    if allowed.vsock or vsock.defaulted(domain) is None:
        return []
    text = "is not allowed in this cluster: an administrator can allow it (--allow-vsock of virt-api, vsock.enabled of the chart)"
    return [forbidden(path.child("vsock"), text)]


def _validate_macvtaps(domain: Object, path: Path, allowed: Allowed) -> list[FieldError]:
    if allowed.macvtap:
        return []
    text = (
        "macvtap is not allowed in this cluster: an administrator can allow it (--allow-macvtap of virt-api, macvtap.enabled of the chart)"
    )
    found = enumerate(interfaces.defaulted(domain))
    return [forbidden(path.child("interfaces").index(each).child("type"), text) for each, one in found if one["type"] == interfaces.MACVTAP]


def _validate_host_disks(domain: Object, path: Path, allowed: Allowed, namespace: str) -> list[FieldError]:
    flag, found = "--host-disks of virt-api and virt-handler, hostDisks.paths of the chart", []
    for position, disk in enumerate(disks.defaulted(domain)):
        place, file = path.child("disks").index(position), host_disks.path_of(disk)
        if not file or host_disks.path_problem(file):
            continue
        if not allowed.host_disks:
            text = f"disks of type HostDisk are not allowed in this cluster: an administrator can allow directories ({flag})"
            found.append(forbidden(place.child("type"), text))
        elif not host_disks.is_below(file, allowed.host_disks, namespace):
            directories = ", ".join(each.replace(host_disks.NAMESPACE, namespace) for each in allowed.host_disks)
            found.append(invalid(place.child("source", "path"), file, f"must be below an allowed directory: {directories} ({flag})"))
    return found


def _validate_storage_plugins(domain: Object, path: Path, allowed: Allowed) -> list[FieldError]:
    flag = "--storage-plugins of virt-api, plugins.storage of the chart"
    none = f"storage plugins are not allowed in this cluster: an administrator can allow some ({flag})"
    found = []
    for position, each in enumerate(disks.defaulted(domain)):
        place, name = path.child("disks").index(position), plugin_disks.plugin_of(each)
        if not plugin_disks.is_plugin(each) or name in allowed.storage_plugins:
            continue
        if not allowed.storage_plugins:
            found.append(forbidden(place.child("type"), none))
        elif name:
            found.append(not_supported(place.child("source", "plugin"), name, sorted(allowed.storage_plugins)))
    return found


def _validate_network_plugins(domain: Object, path: Path, allowed: Allowed) -> list[FieldError]:
    flag = "--network-plugins of virt-api, plugins.network of the chart"
    none = f"network plugins are not allowed in this cluster: an administrator can allow some ({flag})"
    found = []
    for position, each in enumerate(interfaces.defaulted(domain)):
        place, name = path.child("interfaces").index(position), each.get("plugin")
        if each["type"] != interfaces.PLUGIN or name in allowed.network_plugins:
            continue
        if not allowed.network_plugins:
            found.append(forbidden(place.child("type"), none))
        elif name:
            found.append(not_supported(place.child("plugin"), name, sorted(allowed.network_plugins)))
    return found

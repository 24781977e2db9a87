"""Checks a pod before a status may name its uid, because virt-handler starts a guest in it.

The pod must be in the machine's namespace, controlled by the machine, and mount only its claims, images, Secrets, ConfigMaps and tokens.
The result stays true: uids are not reused, and the checked fields are immutable except the owner and the annotation of networks, which
nodes read at the start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta.objects import controller_of, dig, name_of, namespace_of, uid_of
from apiserver.apis.virt.hardware import cloud_init, disk_imports, disks, filesystems, firmware, network_disks
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import managed_save, phases
from apiserver.apis.virt.places import forms, layout, names
from apiserver.apis.virt.spec import access_credentials, attachments, hot_plug, hot_plug_interfaces, running, service_accounts
from apiserver.apis.virt.spec.described import domain_of

Object = Mapping[str, Any]

_PROJECTED: Final[Mapping[str, str]] = {"secret": cloud_init.SECRET, "configMap": cloud_init.CONFIG_MAP}
"""Kinds by a projected volume's field."""
_NO_SUCH_VOLUME: Final = "pods of virtual machines may not have such a volume"


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a pod's volume."""

    kind: str
    """``PersistentVolumeClaim``, ``Image``, ``Secret``, ``ConfigMap``, ``ServiceAccount`` or ``DownwardAPI``."""
    name: str
    """In the pod's namespace, or an image's reference; empty for a DownwardAPI."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


_FIELDS: Final = Content(cloud_init.DOWNWARD_API, "")
_EMPTY: Final = Content("emptyDir", "")
_DEVICE: Final = (layout.ATTACHMENT_DEVICE, layout.ATTACHMENT_DIRECTORY)
"""A claim is there or here."""


def named_by(vm: Object) -> frozenset[Content]:
    """Return the claims, images, Secrets and such that the pod may mount, by the spec that its guest runs or starts with."""
    domain = domain_of(vm)
    found = [each for disk in disks.defaulted(domain) for each in _of_disk(disk)]
    found += [Content(cloud_init.SECRET, each.secret) for each in access_credentials.of(running.spec_of(vm))]
    found += [_of_filesystem(each) for each in filesystems.defaulted(domain)]
    if claim := firmware.state_claim(domain):
        found.append(Content(disks.CLAIM, claim))
    if claim := managed_save.claim_of(running.spec_of(vm)):
        found.append(Content(disks.CLAIM, claim))
    if image := dig(domain, "firmware", "kernelBoot", "container", "image"):
        found.append(Content(disks.IMAGE, str(image)))
    return frozenset(found)


def _of_disk(disk: Object) -> Iterator[Content]:
    source = disk.get("source") or {}
    kind = disk.get("type", disks.CLAIM)
    if kind in cloud_init.TYPES:
        given = (cloud_init.reference(source, datum) for datum in cloud_init.DATA)
        yield from (Content(cloud_init.SECRET, each[0]) for each in given if each is not None)
    elif kind in cloud_init.FILES:
        yield Content(kind, str(source.get("name") or ""))
    elif kind == cloud_init.DOWNWARD_API:
        yield _FIELDS
    elif kind == cloud_init.SERVICE_ACCOUNT:
        yield Content(kind, str(source.get("name") or ""))
        yield from (_FIELDS, Content(cloud_init.CONFIG_MAP, service_accounts.AUTHORITY_CONFIG_MAP))
    elif kind == disks.IMAGE:
        yield Content(kind, str(source.get("reference") or ""))
    elif secret := network_disks.secret_of(disk):
        yield Content(cloud_init.SECRET, secret)
    elif claim := disks.claim_of(disk):
        yield Content(disks.CLAIM, claim)
        yield from _of_import(disk)


def _of_import(disk: Object) -> Iterator[Content]:
    if secret := disk_imports.secret(disk):
        yield Content(cloud_init.SECRET, secret)
    if (authorities := disk_imports.authorities(disk)) is not None:
        yield Content(cloud_init.CONFIG_MAP, authorities[0])


def _of_filesystem(filesystem: Object) -> Content:
    name = filesystems.claim_of(filesystem)
    return Content(str(filesystem.get("type")), name if name is not None else str(dig(filesystem, "source", "name") or ""))


def objections(vm: Object, pod: Object | None, name: str, uid: str) -> list[str]:
    """Return why the machine's status may not name the pod ``name`` with ``uid``; ``pod`` is the current one of the name."""
    if pod is None or (namespace_of(pod), name_of(pod), uid_of(pod)) != (namespace_of(vm), name, uid):
        return [f'no pod "{name}" in namespace "{namespace_of(vm)}" has this uid']
    found = []
    if (controller_of(pod) or {}).get("uid") != uid_of(vm):
        found.append(f'the controller of pod "{name}" is not this virtual machine')
    allowed = named_by(vm)
    account = str(dig(pod, "spec", "serviceAccountName") or "default")
    for volume in dig(pod, "spec", "volumes") or ():
        found += [f'pod "{name}" mounts {each} as volume {volume.get("name")}: {why}' for each, why in _excess(volume, account, allowed)]
    return found + [f'pod "{name}" has {each}' for each in attachments.excess(hot_plug_interfaces.with_added(vm), pod)]


def attachment_objections(vm: Object, entry: Object, pod: Object | None) -> list[str]:
    """Return why an entry of ``status.volumeStatus`` may not name this pod, the current one of its name."""
    name, uid = (str(dig(entry, "hotplugVolume", each) or "") for each in ("attachPodName", "attachPodUID"))
    if pod is None or (namespace_of(pod), name_of(pod), uid_of(pod)) != (namespace_of(vm), name, uid):
        return [f'no pod "{name}" in namespace "{namespace_of(vm)}" has this uid']
    found = []
    if (controller_of(pod) or {}).get("uid") != uid_of(vm):
        found.append(f'the controller of pod "{name}" is not this virtual machine')
    known = (*hot_plug.added(vm), *hot_plug.kept(vm), *hot_plug.removed(vm))
    disk = next((each for each in known if each["name"] == entry.get("name")), {})
    claim = disks.claim_of(disk) if disk else None
    content = Content(disks.IMAGE, hot_plug.reference_of(disk)) if hot_plug.reference_of(disk) else Content(disks.CLAIM, str(claim))
    if not disk or claim != entry.get("claimName"):
        found.append(f'disk "{entry.get("name")}" with PersistentVolumeClaim {entry.get("claimName")} is not in the spec')
    if (node := dig(pod, "spec", "nodeName")) != dig_vm(vm, "status", "nodeName"):
        found.append(f'pod "{name}" is on node {node}, and not on the guest\'s node')
    places = [each.source for each in hot_plug.mounts_of(disk)] if disk else [layout.ATTACHMENT_DIRECTORY]
    for place in places:
        wanted = _EMPTY if place == layout.ATTACHMENT_OVERLAY_DIRECTORY else content
        if wanted not in _contents_at(pod, place):
            found.append(f'pod "{name}" does not mount {wanted} at {place}')
    for volume in dig(pod, "spec", "volumes") or ():
        allowed = frozenset({content, *(_of_import(disk) if disk else ())})
        found += [f'pod "{name}" mounts {each} as volume {volume.get("name")}: {why}' for each, why in _excess(volume, "", allowed)]
    return found


def _contents_at(pod: Object, directory: str) -> list[Content]:
    contents = {each.get("name"): _content(each) for each in dig(pod, "spec", "volumes") or ()}
    own = (each for each in dig(pod, "spec", "containers") or () if each.get("name") == names.CONTAINER)
    mounts = [
        each
        for container in own
        for each in (*(container.get("volumeMounts") or ()), *(container.get("volumeDevices") or ()))
        if each.get("mountPath") == directory or (each.get("devicePath"), directory) == _DEVICE
    ]
    return [contents[name] for each in mounts if (name := each.get("name")) in contents and not _is_partial(each)]


def _content(volume: Object) -> Content:
    if "emptyDir" in volume:
        return _EMPTY
    if reference := dig(volume, "image", "reference"):
        return Content(disks.IMAGE, str(reference))
    return Content(disks.CLAIM, str(dig(volume, "persistentVolumeClaim", "claimName")))


def _is_partial(mount: Object) -> bool:
    return bool(mount.get("subPath") or mount.get("subPathExpr"))


def strange_addresses(pod: Object | None, uid: str, addresses: Collection[str]) -> list[str]:
    """Return why a Migration may not contain these target addresses; empty if it may. The source's pod forwards to them.

    ``pod`` is the current target, ``uid`` the one in the status.
    """
    if pod is None or uid_of(pod) != uid:
        return ["the pod with these addresses does not exist"]
    own = {str(each.get("ip")) for each in dig(pod, "status", "podIPs") or ()} | {str(dig(pod, "status", "podIP"))}
    mine = frozenset(each for each in own if forms.pod_ip(each) is not None)
    return [f'pod "{name_of(pod)}" does not have the address {ascii(each)[:80]}' for each in addresses if each not in mine]


def brings(migration: Object, vm: Object, pod_uid: str) -> bool:
    """Return whether this Migration is unfinished, and moves the machine into the pod with this uid.

    False for one created before the machine, by possibly skewed clocks; the pod is then checked again.
    """
    return (
        phases.is_unfinished(migration)
        and dig_migration(migration, "spec", "selector", "name") == name_of(vm)
        and dig_migration(migration, "status", "targetPodUID") == pod_uid
        and str(dig_migration(migration, "metadata", "creationTimestamp")) >= str(dig_vm(vm, "metadata", "creationTimestamp"))
    )


def _excess(volume: Object, account: str, allowed: Collection[Content]) -> Iterator[tuple[str, str]]:
    for kind, source in volume.items():
        match kind:
            case "name" | "emptyDir":
                continue
            case "persistentVolumeClaim":
                content = Content(disks.CLAIM, str(source.get("claimName") or ""))
            case "image":
                content = Content(disks.IMAGE, str(source.get("reference") or ""))
            case "projected":
                for each in source.get("sources") or ():
                    yield from _excess_projected(each, account, allowed)
                continue
            case _:
                yield kind, _NO_SUCH_VOLUME
                continue
        if content not in allowed:
            yield str(content), "the virtual machine does not name it"


def _excess_projected(source: Object, account: str, allowed: Collection[Content]) -> Iterator[tuple[str, str]]:
    for field, of in source.items():
        if field == "downwardAPI" and _FIELDS in allowed:
            continue
        if field == "serviceAccountToken" and any(each.kind == cloud_init.SERVICE_ACCOUNT for each in allowed):
            content = Content(cloud_init.SERVICE_ACCOUNT, account)
            yield from () if content in allowed else ((str(content), "the virtual machine does not name it"),)
            continue
        if field not in _PROJECTED:
            yield field, _NO_SUCH_VOLUME
        elif (content := Content(_PROJECTED[field], str(of.get("name") or ""))) not in allowed:
            yield str(content), "the virtual machine does not name it"

"""Secrets and ConfigMaps that a machine's pod mounts, and which of them the kubelet does not find. Pure.

virt-controller may not read Secrets. The kubelet reports missing ones in Events of the pod, which users can forge, so they are only shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware import cloud_init, disk_imports, disks, filesystems, network_disks
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import access_credentials, running, service_accounts
from controller.reconcilers.launcher_pods.access_credentials import volume as credential_volume
from controller.reconcilers.launcher_pods.disks import volume as disk_volume
from controller.reconcilers.launcher_pods.filesystems import volume as filesystem_volume
from controller.reconcilers.pods import pod_state

FAILED_MOUNT: Final = "FailedMount"
MAX_EVENTS: Final = 32
MAX_TOLD: Final = 4
FIRST_LOOK_SECONDS: Final = 1.5
"""Most pods run by then."""
REQUEUE_SECONDS: Final = (2.0, 30.0)
"""About as long as the pod has waited."""
SAME_TIME: Final = timedelta(minutes=6)
"""Older Events are about fixed problems: the kubelet repeats each within five minutes."""
AHEAD: Final = timedelta(minutes=1)
"""Later Events are ignored, because they would hide the kubelet's."""
LOOKS_AGAIN: Final = "the kubelet checks again within two minutes, and the {what} once it exists"
"""The Event's time would change the status at every read."""

_VOLUME: Final = re.compile(r'for volume "([^"]{1,63})" : (.*)', re.DOTALL)
_NO_OBJECT: Final = re.compile(r'\b(secret|configmap)s? "([^"]{1,253})" not found', re.IGNORECASE)
_NO_KEY: Final = re.compile(r"references non-existent (?:secret|config) key: ([-._a-zA-Z0-9]{1,253})")
_DISKS: Final = "spec.domain.devices.disks"
_FILESYSTEMS: Final = "spec.domain.devices.filesystems"


@dataclass(frozen=True, slots=True)
class Source:
    """A mounted Secret or ConfigMap, and the field that refers to it."""

    volume: str
    kind: str
    name: str
    key: str
    path: str


def of(vm: Object) -> tuple[Source, ...]:
    """Return the Secrets and ConfigMaps that the machine's pod mounts, with volumes and field paths."""
    spec = running.spec_of(vm)
    domain = spec.get("domain") or {}
    found: list[Source] = []
    for position, disk in enumerate(disks.defaulted(domain)):
        found += _of_disk(disk, disk_volume(position), f"{_DISKS}[{position}].source")
    for position, filesystem in enumerate(filesystems.defaulted(domain)):
        if filesystem.get("type") in cloud_init.FILES:
            name = str(dig(filesystem, "source", "name") or "")
            found.append(Source(filesystem_volume(position), filesystem["type"], name, "", f"{_FILESYSTEMS}[{position}].source.name"))
    for position, credential in enumerate(access_credentials.of(spec)):
        path = f"spec.accessCredentials[{position}].sshPublicKey.source.secret.secretName"
        found.append(Source(credential_volume(position), cloud_init.SECRET, credential.secret, "", path))
    return tuple(found)


def _of_disk(disk: Object, volume: str, path: str) -> Iterable[Source]:
    source = dig(disk, "source") or {}
    if disk.get("type") in cloud_init.FILES:
        yield Source(volume, disk["type"], str(source.get("name") or ""), "", f"{path}.name")
    elif disk_imports.of(disk) is not None:
        yield from _of_import(disk, volume, f"{path}.import")
    elif disk.get("type") == cloud_init.SERVICE_ACCOUNT:
        yield Source(volume, cloud_init.CONFIG_MAP, service_accounts.AUTHORITY_CONFIG_MAP, service_accounts.AUTHORITY, path)
    elif secret := network_disks.login_secret(disk):
        yield from (Source(volume, cloud_init.SECRET, secret, key, f"{path}.secretRef") for key in network_disks.login_keys(disk))
    elif secret := network_disks.tls_secret(disk):
        of_all = layout.NBD_TLS_VOLUME
        yield from (Source(of_all, cloud_init.SECRET, secret, key, f"{path}.tlsSecretRef") for key in network_disks.AUTHORITY_KEYS)
    elif disk.get("type") in cloud_init.TYPES:
        for datum in cloud_init.DATA:
            if (reference := cloud_init.reference(source, datum)) is not None:
                yield Source(volume, cloud_init.SECRET, *reference, f"{path}.{datum}SecretRef")


def _of_import(disk: Object, volume: str, path: str) -> Iterable[Source]:
    kind = next(each for each in disk_imports.KINDS if (disk_imports.of(disk) or {}).get(each))
    if secret := disk_imports.secret(disk):
        yield Source(f"{volume}-secret", cloud_init.SECRET, secret, "", f"{path}.{kind}.secretRef.name")
    if (authorities := disk_imports.authorities(disk)) is not None:
        yield Source(f"{volume}-authorities", cloud_init.CONFIG_MAP, *authorities, f"{path}.{kind}.caConfigMapRef")


def is_to_read(vm: Object, pod: Object, now: datetime) -> bool:
    """Return whether a waiting pod mounts sources, and the kubelet has had time to report missing ones."""
    return has_waited(pod, now) and bool(of(vm))


def has_waited(pod: Object, now: datetime) -> bool:
    """Return whether a pod waits for volumes and networks, and the kubelet has had time to report a problem."""
    waited = waiting_seconds(pod, now)
    return waited is not None and not 0 <= waited < FIRST_LOOK_SECONDS


def requeue_seconds(vm: Object, pod: Object, now: datetime) -> float | None:
    """Return the requeue delay in seconds while Secrets or ConfigMaps may be missing, or None."""
    waited = waiting_seconds(pod, now)
    return None if waited is None or not of(vm) else min(max(waited, REQUEUE_SECONDS[0]), REQUEUE_SECONDS[1])


def waiting_seconds(pod: Object, now: datetime) -> float | None:
    """Return how many seconds a Pending pod has waited on its node for volumes and networks; None for other pods."""
    bound_at = pod_state.bound_at(pod)
    if bound_at is None or pod_state.phase_of(pod) != "Pending" or pod_state.has_volumes(pod):
        return None
    return (now - times.parse(bound_at)).total_seconds()


def trim_event(event: Object) -> Object:
    """Return an Event's ``message``, truncated, and its newest time as ``last``."""
    last = dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return {"message": str(event.get("message") or "")[: pod_state.MAX_MESSAGE], "last": str(last or "")}


def is_of_now(event: Object, now: datetime) -> bool:
    """Return whether a trimmed Event is at most ``AHEAD`` in the future."""
    return time_of(event) <= now + AHEAD


def fault(vm: Object, events: Sequence[Object], follows: str = "virtual machine starts") -> tuple[str, str] | None:
    """Return (reason, message) about missing Secrets or ConfigMaps, or None.

    ``events`` are trimmed by :func:`trim_event`; ``follows`` is what begins once the pod has its volumes.
    """
    sources = of(vm)
    told = dict.fromkeys(each for event in _newest(events) for each in _faults_of(sources, str(event["message"])))
    if not told:
        return None
    said = "; ".join(text for _, text in list(told)[:MAX_TOLD])
    message = one_line(f"{said}; {LOOKS_AGAIN.format(what=follows)}", pod_state.MAX_MESSAGE)
    return next(iter(told))[0], message


def _newest(events: Sequence[Object]) -> list[Object]:
    """Return each volume's newest Event, newest first, if at most ``SAME_TIME`` older than the newest of all.

    Of two with the same time the later in the list counts, because the server's order makes it the newer.
    """
    dated = sorted(((time_of(event), event) for event in reversed(events)), key=lambda each: each[0], reverse=True)
    found: dict[str, Object] = {}
    for time, event in dated:
        match = _VOLUME.search(str(event["message"]))
        if match is not None and dated[0][0] - time <= SAME_TIME:
            found.setdefault(match[1], event)
    return list(found.values())


def time_of(event: Object) -> datetime:
    """Return the time of a trimmed Event; 1970 if unknown."""
    return times.parsed(event["last"]) or times.parse("1970-01-01T00:00:00Z")


def _faults_of(sources: Sequence[Source], message: str) -> Iterable[tuple[str, str]]:
    if (match := _VOLUME.search(message)) is None:
        return
    mounted, said = [each for each in sources if each.volume == match[1]], match[2]
    for kind, name in _NO_OBJECT.findall(said):
        yield from _missing((each for each in mounted if (each.kind.lower(), each.name) == (kind.lower(), name)), "not found")
    for key in _NO_KEY.findall(said):
        yield from _missing((each for each in mounted if each.key == key), f"has no key {key}")


def _missing(sources: Iterable[Source], what: str) -> Iterable[tuple[str, str]]:
    for each in sources:
        yield conditions.NOT_FOUND_OF[each.kind], f"{each.path}: {each.kind} {each.name} {what}"

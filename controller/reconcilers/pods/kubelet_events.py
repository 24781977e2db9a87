"""The kubelet's Events about missing volumes or networks of a launcher pod, read from the server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from apiserver.apis.core.resources import EVENTS
from apiserver.apis.meta.objects import Object, namespace_of, uid_of
from apiserver.client.rest import Client
from controller.reconcilers.pods import mounted_sources, sandboxes


@dataclass(frozen=True, slots=True)
class KubeletEvents:
    """Events of one pod, trimmed."""

    mounts: tuple[Object, ...] = ()
    sandboxes: tuple[Object, ...] = ()


async def gather(client: Client, vm: Object, pod: Object, now: datetime) -> KubeletEvents:
    """Read a waiting pod's Events about missing volumes and networks, trimmed; none if it waits for neither, or not long enough.

    Raises StatusError, TransportError.
    """
    mounts: tuple[Object, ...] = ()
    networks: tuple[Object, ...] = ()
    if mounted_sources.is_to_read(vm, pod, now):
        found = map(mounted_sources.trim_event, await _read(client, pod, mounted_sources.FAILED_MOUNT))
        mounts = tuple(each for each in found if mounted_sources.is_of_now(each, now))
    if sandboxes.is_to_read(vm, pod, now):
        found = map(sandboxes.trim_event, await _read(client, pod, sandboxes.FAILED_SANDBOX))
        networks = tuple(each for each in found if mounted_sources.is_of_now(each, now))
    return KubeletEvents(mounts, networks)


async def _read(client: Client, pod: Object, reason: str) -> tuple[Object, ...]:
    selector = f"involvedObject.uid={uid_of(pod)},reason={reason}"
    return await client.page(EVENTS, namespace_of(pod), field_selector=selector, limit=mounted_sources.MAX_EVENTS)

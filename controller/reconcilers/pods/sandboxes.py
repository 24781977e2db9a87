"""Networks that a node's plugins refuse to a pod, according to its kubelet. Pure.

A node sets up a pod's networks after its volumes. Errors there are only in Events of the pod, which users can forge, so they are only
shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec import attachments
from controller.reconcilers.pods import mounted_sources, pod_state
from controller.reconcilers.pods.networks import Definition

FAILED_SANDBOX: Final = "FailedCreatePodSandBox"
MAX_TEXT: Final = 2048
"""One plugin's message comes after those of the layers above it."""
LOOKS_AGAIN: Final = "the node retries, and the {what} once that is fixed"

_OF_NETWORK: Final = re.compile(r'error adding container to network "([^"]{1,253})": (.*)', re.DOTALL)
"""Multus, with the name in the network's configuration."""
_OF_PLUGIN: Final = re.compile(r"failed \(add\): (.*)", re.DOTALL)
"""Every runtime that uses libcni."""
_OF_ONE_TRY: Final = re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""Identifiers of sandboxes and network namespaces, which would cause a status write for each attempt."""


def is_to_read(vm: Object, pod: Object, now: datetime) -> bool:
    """Return whether a pod with networks has waited long enough for the kubelet to write why they are not ready."""
    return mounted_sources.has_waited(pod, now) and bool(attachments.of(vm))


def trim_event(event: Object) -> Object:
    """Return an Event's ``message``, truncated to ``MAX_TEXT``, and its newest time as ``last``."""
    return {**mounted_sources.trim_event(event), "message": str(event.get("message") or "")[:MAX_TEXT]}


def fault(
    definitions: Sequence[Definition],
    node: str,
    events: Sequence[Object],
    mounts: Sequence[Object],
    follows: str = "virtual machine starts",
) -> tuple[str, str] | None:
    """Return (reason, message) from the newest Event about the pod's networks, or None.

    ``events`` are trimmed by :func:`trim_event`. If one of ``mounts``, about volumes, is newer, the kubelet is not setting up networks.
    ``follows`` is what begins once the pod has its networks.
    """
    newest = max(reversed(events), key=mounted_sources.time_of, default=None)
    if newest is None or any(mounted_sources.time_of(each) > mounted_sources.time_of(newest) for each in mounts):
        return None
    text = str(newest["message"])
    if (found := _OF_NETWORK.search(text)) is not None:
        named, said = [each.network for each in definitions if each.called == found[1]], found[2]
    else:
        named, said = [], found[1] if (found := _OF_PLUGIN.search(text)) is not None else text
    named = named or [each.network for each in definitions if each.network.partition("/")[2] in re.findall(r"[a-z0-9-]+", said)]
    what = f"network {', '.join(dict.fromkeys(named))}" if named else "a network"
    said = _OF_ONE_TRY.sub("…", one_line(said, pod_state.MAX_MESSAGE // 2))
    text = f"according to the pod's events, node {node} cannot connect the pod to {what}: {said}; {LOOKS_AGAIN.format(what=follows)}"
    return conditions.NETWORK_NOT_USABLE, one_line(text, pod_state.MAX_MESSAGE)

"""Find a node's virt-handler in an informer of pods."""

from __future__ import annotations

from typing import Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.errors import Details, ServiceUnavailable
from apiserver.apis.meta.objects import Object, dig, is_deleting
from apiserver.apis.virt.places import forms, names, streams
from apiserver.client.informer import Informer
from apiserver.client.rest import Client

_BY_NODE: Final = "node"


def handler_pods(client: Client, namespace: str) -> Informer:
    """Return an ``Informer`` of virt-handler's pods, which the caller runs."""
    selector = f"{names.COMPONENT_LABEL}={names.HANDLER}"
    return Informer(client, PODS, namespace, label_selector=selector, indexers={_BY_NODE: _nodes}, trim=_trim)


class HandlerLocator:
    """Maps a node's name to virt-handler's address."""

    def __init__(self, pods: Informer) -> None:
        self._pods = pods

    async def __call__(self, node: str) -> tuple[str, int]:
        """Return (host, port) of a node's virt-handler; raises ServiceUnavailable if none runs."""
        found = self.addresses(node)
        if not found:
            raise ServiceUnavailable(f'virt-handler on node "{node}" is not ready: check its pod', Details(retry_after_seconds=2))
        return found[0], streams.HANDLER_PORT

    def addresses(self, node: str) -> list[str]:
        """Return the IP addresses of a node's running virt-handlers: one, none, or briefly several.

        Ignores invalid addresses: a compromised node's kubelet could make virt-api dial them.
        """
        return [pod["status"]["podIP"] for pod in self._pods.by_index(_BY_NODE, node) if _is_ready(pod)]


def _nodes(pod: Object) -> list[str]:
    node = dig(pod, "spec", "nodeName")
    return [node] if node else []


def _is_ready(pod: Object) -> bool:
    # An unready handler can still serve consoles.
    is_running = not is_deleting(pod) and dig(pod, "status", "phase") == "Running"
    return is_running and forms.pod_ip(str(dig(pod, "status", "podIP") or "")) is not None


def _trim(pod: Object) -> Object:
    metadata = pod["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp") if key in metadata}
    status = {key: dig(pod, "status", key) for key in ("phase", "podIP")}
    return {"metadata": kept, "spec": {"nodeName": dig(pod, "spec", "nodeName")}, "status": status}

"""The processes of attachment pods, which have claims for guests of this node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apiserver.apis.virt.places import layout
from handler.pods import places
from handler.pods.process import Launcher


@contextmanager
def opened(pod_uid: str, kubelet: Path = places.KUBELET_DIRECTORY) -> Iterator[Launcher]:
    """Yield the process of an attachment pod. Raises ValueError for an invalid uid.

    Raises NotOfThisPod if a process outside of this pod listens at its socket, or OSError if the pod is not here, or does not listen yet.
    """
    with places.run_directory(pod_uid, kubelet) as directory, places.connect(directory, layout.ATTACHMENT_SOCKET) as link:
        process = Launcher.of(places.peer_process(link), pod_uid)
    try:
        yield process
    finally:
        process.close()

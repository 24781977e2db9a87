from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Pod = Mapping[str, Any]


def unbounded(spec: Pod) -> list[str]:
    found = [
        f"volume {each['name']}: an emptyDir without sizeLimit"
        for each in spec.get("volumes", ())
        if "emptyDir" in each and not each["emptyDir"].get("sizeLimit")
    ]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        found += (f"container {container['name']}: {each}" for each in _of_container(container, spec))
    return found


def _of_container(container: Pod, spec: Pod) -> Iterable[str]:
    if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
        yield "its root file system is writable"
    limits = container.get("resources", {}).get("limits", {})
    if not limits.get("memory"):
        yield "no memory limit"
    on_disk = {each["name"] for each in spec.get("volumes", ()) if "emptyDir" in each and each["emptyDir"].get("medium") != "Memory"}
    if on_disk & {each["name"] for each in container.get("volumeMounts", ())} and not limits.get("ephemeral-storage"):
        yield "writes to the node's disk without an ephemeral-storage limit"

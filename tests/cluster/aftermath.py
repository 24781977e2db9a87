"""A namespace's state after a failed test, for the report."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

from tests.cluster.kube import Kubectl

EVENTS = 15
KERNEL = ("segfault", "traps:", "oom-kill", "Out of memory")


def seen(kubectl: Kubectl) -> str:
    tables = (("get", "vm,vmmig,pods", "-o", "wide"), ("get", "events", "--sort-by=.metadata.creationTimestamp", "-o", _EVENT))
    objects, events = (_told(kubectl, *arguments) for arguments in tables)
    return "\n".join((objects, *_endings(kubectl), *events.splitlines()[-EVENTS:], *_kernel()))


_EVENT = "custom-columns=LAST:.lastTimestamp,OF:.involvedObject.name,REASON:.reason,MESSAGE:.message"


def _told(kubectl: Kubectl, *arguments: str) -> str:
    try:
        done = kubectl.try_run(*arguments, timeout=20)
    except subprocess.TimeoutExpired:
        return f"kubectl {arguments[0]} took more than 20 s"
    return done.stdout + done.stderr


def _endings(kubectl: Kubectl) -> Iterator[str]:
    try:
        pods = json.loads(_told(kubectl, "get", "pods", "-o", "json"))["items"]
    except ValueError:
        return
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            if ended := container["state"].get("terminated") or container["lastState"].get("terminated"):
                words = ended.get("message", "")[-800:]
                yield f"{pod['metadata']['name']} ended with {ended['exitCode']} at {ended.get('finishedAt')}: {words}"


def _kernel() -> list[str]:
    said = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=20, check=False).stdout
    return [line for line in said.splitlines() if any(word in line for word in KERNEL)][-3:]

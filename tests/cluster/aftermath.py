"""A namespace's state after a failed test, for the report."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Final

from tests.cluster.kube import Kubectl

EVENTS = 15
KERNEL = ("segfault", "traps:", "oom-kill", "Out of memory")
_LINE: Final = re.compile(r"\[ *([0-9.]+)\].*")


def seen(kubectl: Kubectl, *, since: float) -> str:
    """``since``: Unix seconds."""
    tables = (("get", "vm,vmmig,pods", "-o", "wide"), ("get", "events", "--sort-by=.metadata.creationTimestamp", "-o", _EVENT))
    objects, events = (_told(kubectl, *arguments) for arguments in tables)
    return "\n".join((objects, *_endings(kubectl), *events.splitlines()[-EVENTS:], *_kernel(since)))


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


def _kernel(since: float) -> list[str]:
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    said = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=20, check=False).stdout
    timed = (found for line in said.splitlines() if (found := _LINE.match(line)))
    return [each[0] for each in timed if booted + float(each[1]) >= since and any(word in each[0] for word in KERNEL)][-3:]

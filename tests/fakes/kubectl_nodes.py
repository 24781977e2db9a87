"""A fake kubectl: an executable that plays a cluster with one StatefulSet, with its pod's data in a directory of one node.

It supports the calls of ``kubectl virt move-etcd``. Nodes are directories below ``$KUBECTL_NODES``; ``cluster.json`` there has the objects.
Starting the pod runs ``start NODE-DIRECTORY``, and ending it ``stop``, both programs of the test. ``cut`` has a word and a text: the first
call with that text fails ``before`` or ``after`` its effect, or kills its caller (``kill``).

A node's data is at ``<directory>/<node>``, whatever path the volume has.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(os.environ.get("KUBECTL_NODES", "."))
POD = "kubevirt-etcd-0"


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "cluster.json").read_text())
    return found


def save(objects: dict[str, Any]) -> None:
    (HERE / "cluster.json").write_text(json.dumps(objects))


def host_of(volume: dict[str, Any]) -> str:
    return str(volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0])


def main(arguments: list[str]) -> int:
    flags = [each for each in arguments[: arguments.index("--") if "--" in arguments else None] if each.startswith("--")]
    after = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    words = [each for each in arguments[: len(arguments) - len(after)] if not each.startswith("--")]
    line = shlex.join([*words, *after])
    with (HERE / "calls").open("a") as calls:
        calls.write(line + "\n")
    cut = HERE / "cut"
    when, _, text = cut.read_text().partition(" ") if cut.exists() else ("", "", "")
    if text and text in line:
        cut.unlink()
        if when == "after":
            carry_out(words, flags, after)
        if when == "kill":
            carry_out(words, flags, after)
            os.kill(os.getppid(), signal.SIGKILL)
        print("the connection was cut", file=sys.stderr)
        return 1
    return carry_out(words, flags, after)


def carry_out(words: list[str], flags: list[str], after: list[str]) -> int:
    verb, *rest = words
    objects = load()
    match verb:
        case "get":
            if (found := objects.get(f"{rest[0]}/{rest[1]}")) is not None:
                print(json.dumps(found))
        case "create":
            obj = json.load(sys.stdin)
            key = f"{obj['kind'].lower()}/{obj['metadata']['name']}"
            if key in objects:
                print("it exists", file=sys.stderr)
                return 1
            objects[key] = obj | ({"status": {"phase": "Running"}} if obj["kind"] == "Pod" else {})
            save(objects)
        case "delete":
            for name in rest[1:]:
                objects.pop(f"{rest[0]}/{name}", None)
            save(objects)
        case "scale":
            return scale(objects, next(each for each in flags if each.startswith("--replicas=")).endswith("1"))
        case "patch":
            patch = json.loads(next(each for each in flags if each.startswith("--patch=")).removeprefix("--patch="))
            annotations = objects[rest[0]]["metadata"].setdefault("annotations", {})
            annotations.update(patch["metadata"]["annotations"])
            objects[rest[0]]["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
            save(objects)
        case "exec":
            node = objects[f"pod/{rest[0]}"]["spec"]["nodeSelector"]["kubernetes.io/hostname"]
            command = after[-1].replace("/bin/busybox ", "").replace(" /data", f" {HERE / node}")
            return subprocess.run(["sh", "-c", command], check=False).returncode
        case "wait" | "rollout":
            running = (HERE / "running").exists()
            return int(running == (verb == "wait")) if f"pod/{POD}" in rest or verb == "rollout" else 0
        case _:
            raise SystemExit(f"a kubectl without {verb}")
    return 0


def scale(objects: dict[str, Any], up: bool) -> int:
    running = HERE / "running"
    if not up:
        if running.exists():
            subprocess.run([HERE / "stop"], check=True)
            running.unlink()
        return 0
    volume = objects.get("persistentvolume/kubevirt-etcd-0")
    if volume is None:
        return 0
    objects["persistentvolumeclaim/data-kubevirt-etcd-0"] = {"spec": {"volumeName": "kubevirt-etcd-0"}}
    save(objects)
    if not running.exists():
        running.write_text(host_of(volume))
        subprocess.run([HERE / "start", HERE / host_of(volume)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

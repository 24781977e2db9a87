"""``make bench-devices``: each device's cost, in pod memory and in seconds until the guest's prompt (docs/performance.md).

A device's price is the difference of medians. The last machine is that of ``examples/cloud-init.yaml``, until cloud-init has finished.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks import gauges, live_changes, operations
from tests.cluster import processes
from tests.cluster.kube import ROOT, Kubectl, console
from tests.cluster.manifests import BZIMAGE, GUEST_IMAGE, linux_vm, shared_claim
from tests.testbed import cloud_demo, ssh

BASE: Final = "base"
CLOUD: Final = "cloud-init"
START_SECONDS: Final = 300
CLOUD_SECONDS: Final = 1500
PROMPT: Final = "GUEST-READY"

_DISK: Final = {"name": "more", "type": "Image", "source": {"reference": GUEST_IMAGE}}
_SEED: Final = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "#cloud-config\n"}}
CLAIM: Final = "bench-claim"
SECRET: Final = "bench-secret"
_FIELDS: Final = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
_CLAIM: Final = {"name": "more", "type": "PersistentVolumeClaim", "source": {"name": CLAIM, "create": {"size": "64Mi"}}}
_BLANK: Final = {"name": "more", "type": "EmptyDisk", "source": {"size": "64Mi"}}
_FILESYSTEM: Final = {"name": "ca", "type": "ConfigMap", "source": {"name": "kube-root-ca.crt"}}
DEVICES: Final[Mapping[str, Mapping[str, Any]]] = {
    "disk": {"devices": {"disks": [_DISK]}},
    "empty disk": {"devices": {"disks": [_BLANK]}},
    "empty disk, I/O thread": {"devices": {"disks": [{**_BLANK, "dedicatedIOThread": True}]}},
    "empty disk, sata": {"devices": {"disks": [{**_BLANK, "target": {"bus": "sata"}}]}},
    "empty disk, scsi": {"devices": {"disks": [{**_BLANK, "target": {"bus": "scsi"}}]}},
    "empty disk, usb": {"devices": {"disks": [{**_BLANK, "target": {"bus": "usb"}}]}},
    "disk of a claim": {"devices": {"disks": [_CLAIM]}},
    "overlay over a claim": {"devices": {"disks": [{**_CLAIM, "source": {"name": CLAIM, "ephemeral": True, "sizeLimit": "64Mi"}}]}},
    "cdrom": {"devices": {"disks": [{**_DISK, "device": "cdrom", "target": {"bus": "sata"}}]}},
    "cdrom, empty": {"devices": {"disks": [{"name": "drive", "device": "cdrom"}]}},
    "disk of a ConfigMap": {"devices": {"disks": [{"name": "more", "type": "ConfigMap", "source": {"name": "kube-root-ca.crt"}}]}},
    "disk of a Secret": {"devices": {"disks": [{"name": "more", "type": "Secret", "source": {"name": SECRET}}]}},
    "disk of DownwardAPI": {"devices": {"disks": [{"name": "more", "type": "DownwardAPI", "source": {"items": _FIELDS}}]}},
    "nic": {"devices": {"interfaces": [{"name": "default", "type": "masquerade"}]}},
    "nic, bridge": {"devices": {"interfaces": [{"name": "default", "type": "bridge"}]}},
    "nic, passt": {"devices": {"interfaces": [{"name": "default", "type": "passt", "ports": []}]}},
    "nic, e1000e": {"devices": {"interfaces": [{"name": "default", "type": "masquerade", "model": "e1000e"}]}},
    "vnc": {"devices": {"graphics": [{"type": "vnc"}]}},
    "spice": {"devices": {"graphics": [{"type": "spice"}]}},
    "vnc, bochs": {"devices": {"graphics": [{"type": "vnc"}], "video": {"type": "bochs"}}},
    "vnc, virtio": {"devices": {"graphics": [{"type": "vnc"}], "video": {"type": "virtio"}}},
    "tablet": {"devices": {"inputs": [{"type": "tablet", "bus": "usb"}]}},
    "sound": {"devices": {"sound": {"model": "ich9"}}},
    "watchdog": {"devices": {"watchdog": {"model": "i6300esb", "action": "pause"}}},
    "rng, none": {"devices": {"rng": {"model": "none"}}},
    "panic, none": {"devices": {"panic": {"model": "none"}}},
    "redirected devices": {"devices": {"redirectedDevices": {"slots": 2}}},
    "uefi": {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}},
    "tpm": {"devices": {"tpm": {}}},
    "cloud-init disk": {"devices": {"disks": [_SEED]}},
    "cloud-init disk, config drive": {"devices": {"disks": [{**_SEED, "type": "CloudInitConfigDrive"}]}},
    "file system": {"devices": {"filesystems": [_FILESYSTEM]}},
    "file system of a claim": {"devices": {"filesystems": [{"name": "more", "type": "PersistentVolumeClaim", "source": {"name": CLAIM}}]}},
}
"""Members of ``spec.domain.devices`` and ``spec.domain.firmware``."""


@dataclass(frozen=True)
class Sample:
    """One start of a machine: seconds to its prompt, and its pod's memory."""

    seconds: float
    memory_mib: float


def machine(name: str, more: Mapping[str, Any]) -> dict[str, Any]:
    manifest = copy.deepcopy(linux_vm(name))
    domain = manifest["spec"]["domain"]
    domain["memory"] = {"guest": "256Mi"}
    domain["devices"] = {"graphics": [], "interfaces": [], "consoles": [{"type": "pty"}], **more.get("devices", {})}
    domain["firmware"]["kernelBoot"]["container"] |= BZIMAGE  # UEFI needs a bzImage
    domain["firmware"] |= more.get("firmware", {})
    return manifest


def start(kubectl: Kubectl, manifest: dict[str, Any], said: str, seconds: float) -> Sample:
    name = manifest["metadata"]["name"]
    began = time.monotonic()
    kubectl.create(manifest)
    kubectl("wait", "vm", name, "--for=jsonpath={.status.phase}=Running", f"--timeout={START_SECONDS}s", timeout=START_SECONDS + 10)
    with console(kubectl, name) as guest:
        guest.expect(said, timeout=seconds)
    taken = time.monotonic() - began
    (pod,) = kubectl.json("get", "pods", "-l", f"vm.kubevirt.io/name={name}")["items"]
    sample = Sample(taken, sum(processes.proportional_kib(pid) for pid in processes.of_pod(pod)) / 1024)
    kubectl("delete", "vm", name, "--timeout=180s", timeout=190)
    return sample


def measure(kubectl: Kubectl, count: int, names: Sequence[str]) -> dict[str, list[Sample]]:
    wanted: dict[str, Mapping[str, Any]] = {BASE: {}, **{name: DEVICES[name] for name in names}}
    kubectl.create(shared_claim(CLAIM))
    kubectl("create", "secret", "generic", SECRET, "--from-literal=key=value")
    found: dict[str, list[Sample]] = {name: [] for name in wanted}
    for turn in range(count):
        for position, (name, more) in enumerate(wanted.items()):
            found[name].append(start(kubectl, machine(f"bench-{turn}-{position}", more), PROMPT, START_SECONDS))
            print(f"  {name}: {found[name][-1].seconds:.1f} s, {found[name][-1].memory_mib:.1f} MiB", file=sys.stderr)
    return found


def cloud(kubectl: Kubectl) -> Sample:
    with tempfile.TemporaryDirectory() as scratch:
        public = ssh.public(ssh.make_key(Path(scratch, "key")))
        kubectl("create", "secret", "generic", "my-keys", f"--from-file={public}")
    manifest = yaml.safe_load((ROOT / "examples/cloud-init.yaml").read_text())
    return start(kubectl, manifest, cloud_demo.FINISHED, CLOUD_SECONDS)


def report(samples: Mapping[str, list[Sample]]) -> dict[str, Any]:
    seconds = {name: statistics.median(each.seconds for each in found) for name, found in samples.items()}
    memory = {name: statistics.median(each.memory_mib for each in found) for name, found in samples.items()}
    return {
        name: {
            "machines": len(found),
            "seconds": round(seconds[name], 2),
            "memory_mib": round(memory[name], 1),
            **(
                {}
                if name in (BASE, CLOUD)
                else {
                    "price_seconds": round(seconds[name] - seconds[BASE], 2),
                    "price_memory_mib": round(memory[name] - memory[BASE], 1),
                }
            ),
        }
        for name, found in samples.items()
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    kubectl = Kubectl(Path(arguments.kubeconfig), arguments.namespace)
    with gauges.namespace(kubectl):
        if arguments.changes_only:
            return {"changes": live_changes.measure(kubectl, arguments.count)}
        if arguments.ports_only:
            return {"operations": operations.ports(kubectl, arguments.count)}
        if arguments.operations_only:
            return {"operations": operations.measure(kubectl, arguments.count)}
        samples = measure(kubectl, arguments.count, arguments.only or list(DEVICES))
        if not arguments.no_cloud:
            samples[CLOUD] = [cloud(kubectl)]
        live = live_changes.measure(kubectl, arguments.count)
        return {**report(samples), "operations": operations.measure(kubectl, arguments.count), "changes": live}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what devices of virtual machines cost on the test cluster.")
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig of the test cluster, with the chart installed and the image debian")
    parser.add_argument("--count", type=int, default=3, help="how many machines of each kind (default 3)")
    parser.add_argument("--only", action="append", choices=list(DEVICES), help="one of the devices (default all of them)")
    parser.add_argument("--no-cloud", action="store_true", help="leave the cloud image out")
    parser.add_argument(
        "--operations-only", action="store_true", help="measure no devices, but verbs, screenshots, echoes and rates of ports"
    )
    parser.add_argument("--ports-only", action="store_true", help="measure only the rates of ports")
    parser.add_argument("--changes-only", action="store_true", help="measure only how long edits of a running machine take")
    parser.add_argument("--namespace", default="bench-devices", help="namespace to make and remove (default bench-devices)")
    parser.add_argument("--output", type=Path, default=Path("build/bench/devices.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    text = json.dumps(run(arguments), indent=1)
    print(text)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()

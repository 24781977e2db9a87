"""Seconds until an edit of a running machine has its effect, for each kind of hardware.

For each edit of :data:`KINDS`, a new machine gets it and the edit back, some times in turn: virt-handler's 21st write of a machine waits.
The clock runs from the spec's patch until the guest sees the effect, or where it cannot, until the status reports it.
"""

from __future__ import annotations

import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.kinds import dig_vm
from benchmarks import gauges
from tests.cluster import test_claims, test_imports
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, shared_claim
from tests.guest_kernel import KERNEL_ARGS
from tests.testbed import kubectl as testbed_kubectl

Domain = dict[str, Any]

MACHINE: Final = "bench-live"
CLAIM: Final = "bench-live"
GROWING_CLAIM: Final = "bench-live-growing"
SECONDS: Final = 120


@dataclass(frozen=True)
class Kind:
    """An edit, and how to see its effect."""

    edit: Callable[[Domain], Any]
    """Changes ``spec.domain`` of :func:`machine`."""
    seen: str
    """A shell command that succeeds in the guest exactly while it has the edited hardware; empty: the status says."""
    back: bool = True


_DISK: Final = {"name": "more", "type": "PersistentVolumeClaim", "source": {"name": CLAIM, "create": {"size": "16Mi"}}, "serial": "more"}
_BLANK: Final = {"name": "more", "type": "EmptyDisk", "source": {"size": "16Mi"}, "serial": "more"}
_COPY: Final = {**_BLANK, "type": "Image", "source": {"reference": GUEST_IMAGE, "path": "boot/vmlinux", "sizeLimit": "128Mi"}}
_IMPORTED: Final = {**_DISK, "source": {"name": CLAIM, "import": {"http": {"url": test_imports.URL}}}}
_HAS_MORE: Final = "grep -qs more /sys/block/vd*/serial"
_GROWING: Final = {"name": "growing", "type": "PersistentVolumeClaim", "source": {"name": GROWING_CLAIM, "create": {"size": "16Mi"}}}
_TRAY: Final = {"name": "tray", "device": "cdrom", "target": {"bus": "scsi"}}
_MEDIUM: Final = {"type": "Image", "source": {"reference": GUEST_IMAGE}}
KINDS: Final[Mapping[str, Kind]] = {
    "limit of a disk": Kind(lambda domain: domain["devices"]["disks"][0].update(ioTune={"totalIopsSec": 977}), ""),
    "imported disk": Kind(lambda domain: domain["devices"]["disks"].append(_IMPORTED), _HAS_MORE, back=False),
    "disk on a claim": Kind(lambda domain: domain["devices"]["disks"].append(_DISK), _HAS_MORE),
    "blank disk": Kind(lambda domain: domain["devices"]["disks"].append(_BLANK), _HAS_MORE),
    "disk on an image": Kind(lambda domain: domain["devices"]["disks"].append(_COPY), _HAS_MORE),
    "medium, an image": Kind(
        lambda domain: domain["devices"]["disks"][1].update(_MEDIUM), "dd if=/dev/sr0 of=/dev/null count=1 2>/dev/null"
    ),
    "link state": Kind(lambda domain: domain["devices"]["interfaces"][0].update(state="down"), "grep -q 0 /sys/class/net/eth0/carrier"),
    "no network card": Kind(lambda domain: domain["devices"]["interfaces"].clear(), "[ $(ls /sys/class/net | grep -c eth) = 0 ]"),
    "memory, 256 MiB more": Kind(lambda domain: domain["memory"].update(guest="512Mi"), "[ $(free -m | awk '/Mem/ {print $2}') -gt 400 ]"),
    "processor": Kind(lambda domain: domain["cpu"].update(sockets=2), "", back=False),
    "growth of a disk by 16 MiB": Kind(
        lambda domain: domain["devices"]["disks"][2].update(source={"name": GROWING_CLAIM, "create": {"size": "32Mi"}}),
        "[ $(cat /sys/block/vdb/size) = 65536 ]",
        back=False,
    ),
}


def machine() -> dict[str, Any]:
    manifest = copy.deepcopy(linux_vm(MACHINE))
    domain = manifest["spec"]["domain"]
    domain["cpu"] = {"sockets": 1, "maxSockets": 3}
    domain["memory"] = {"guest": "256Mi", "maxGuest": "1Gi"}
    domain["firmware"]["kernelBoot"]["kernelArgs"] = f"{KERNEL_ARGS} memhp_default_state=online_movable"
    scratch = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}}
    domain["devices"] |= {"graphics": [], "disks": [scratch, dict(_TRAY), dict(_GROWING)], "interfaces": [{"name": "default"}]}
    return manifest


def on_device(claim: str) -> Kind:
    disk = {**_DISK, "source": {"name": claim}}
    return Kind(lambda domain: domain["devices"]["disks"].append(disk), _HAS_MORE)


def measure(kubectl: Kubectl, count: int, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Return the median seconds of each edit (``edit``) and of the edit back (``back``), by kind."""
    for claim in (CLAIM, GROWING_CLAIM):
        kubectl.create(shared_claim(claim))
    kubectl.create(test_imports.a_server())
    kubectl("create", "service", "clusterip", "images", "--tcp=80:8080")
    with ExitStack() as stack:
        if testbed_kubectl.is_own_cluster():
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            claim = stack.enter_context(test_claims.device(kubectl, directory))
            kinds = {**kinds, "disk on a block claim": on_device(claim)}
        return _measure(kubectl, count, kinds)


def _measure(kubectl: Kubectl, count: int, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in kinds}
    for name, kind in kinds.items():
        with gauges.started(kubectl, machine()), console(kubectl, MACHINE) as guest:
            guest.type("\n")
            guest.run("true")  # the first command waits for the shell
            for _ in range(count if kind.back else 1):
                for way, edited in [("edit", True), *([("back", False)] if kind.back else [])]:
                    seconds = _seconds(kubectl, guest, kind, edited=edited)
                    taken[name].setdefault(way, []).append(seconds)
                    print(f"  {name}, {way}: {seconds:.2f} s", file=sys.stderr)
                if kind.back:
                    kubectl.api.until("vm", MACHINE, _is_at_rest, timeout=SECONDS, what="libvirt has the edit back, and no pod a disk")
    return {name: {way: round(statistics.median(each), 2) for way, each in ways.items()} for name, ways in taken.items()}


def _seconds(kubectl: Kubectl, guest: Console, kind: Kind, *, edited: bool) -> float:
    domain = machine()["spec"]["domain"]
    if edited:
        kind.edit(domain)
    parts = {each: domain[each] for each in ("cpu", "memory")}
    devices = {each: domain["devices"][each] for each in ("disks", "interfaces")}
    began = time.monotonic()
    kubectl.api.patch("vm", MACHINE, {"spec": {"domain": {**parts, "devices": devices}}})
    if not kind.seen:
        kubectl.api.until("vm", MACHINE, _has_taken_all, timeout=SECONDS, what="libvirt has the edit")
    else:
        guest.run(f"{'until' if edited else 'while'} {kind.seen}; do usleep 50000; done", timeout=SECONDS)
    return time.monotonic() - began


def _has_taken_all(vm: dict[str, Any]) -> bool:
    return dig_vm(vm, "status", "observedGeneration") == vm["metadata"]["generation"] and "running" not in vm["status"]


def _is_at_rest(vm: dict[str, Any]) -> bool:
    return _has_taken_all(vm) and not dig_vm(vm, "status", "volumeStatus")

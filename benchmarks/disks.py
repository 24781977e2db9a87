"""``make bench-disks``: a disk's throughput and operations in the guest and outside (docs/performance.md).

``gauge`` uses the disk with O_DIRECT: 1 MiB sequentially, and 4 KiB at random positions, by one and by sixteen processes.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import gauges
from benchmarks.gauges import MIB, START_SECONDS, Reading, Run
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, shared_claim, with_disks

OUTSIDE: Final = "container"
GUESTS: Final[Mapping[str, bool]] = {"guest": False, "guest, I/O thread": True}
CLAIM: Final = "gauged"
PATIENCE_SECONDS: Final = 120.0
"""Extra seconds of a run: first writes allocate blocks."""


@dataclass(frozen=True)
class Work:
    """One way to use a disk: ``sequential`` or ``random`` order, ``read`` or ``write``, by ``jobs`` processes."""

    order: str
    direction: str
    block_bytes: int
    jobs: int

    def words(self, path: str, seconds: int) -> str:
        """Return the arguments of ``gauge`` for this work on ``path``."""
        return f"file {path} {self.order} {self.direction} {self.block_bytes} {self.jobs} {seconds}"


WORKS: Final[Mapping[str, Work]] = {
    "sequential write, 1 MiB": Work("sequential", "write", MIB, 1),
    "sequential read, 1 MiB": Work("sequential", "read", MIB, 1),
    "random write, 4 KiB": Work("random", "write", 4096, 1),
    "random read, 4 KiB": Work("random", "read", 4096, 1),
    "random write, 4 KiB, 16 at a time": Work("random", "write", 4096, 16),
    "random read, 4 KiB, 16 at a time": Work("random", "read", 4096, 16),
}
"""Writes come first, so reads find data."""

Readings = dict[str, dict[str, list[Reading]]]


def machine(name: str, *, io_thread: bool, node: str) -> dict[str, Any]:
    manifest = copy.deepcopy(linux_vm(name))
    devices = manifest["spec"]["domain"]["devices"]
    devices |= {"graphics": [], "interfaces": []}
    disk: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": CLAIM}, "target": {"bus": "virtio"}}
    disk |= {"driver": {"cache": "none"}, "dedicatedIOThread": io_thread}
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return with_disks(manifest, disk)


def written(mib: int) -> str:
    return f"busybox dd if=/dev/zero of=/claim/disk.img.new bs=1M count={mib} conv=fsync && mv /claim/disk.img.new /claim/disk.img"


def run_all(run: Run, place: str, path: str, seconds: int, found: Readings) -> None:
    for name, work in WORKS.items():
        read = run(work.words(path, seconds), seconds + PATIENCE_SECONDS)
        found.setdefault(place, {}).setdefault(name, []).append(read)
        print(f"  {place}: {name}: {read.mib_per_second:.1f} MiB/s, {read.per_second:.0f}/s", file=sys.stderr)


def in_machine(kubectl: Kubectl, place: str, node: str, seconds: int, found: Readings) -> str:
    """Start a machine, :func:`run_all` in its guest, and delete it; return ``kvm`` or ``emulation``. Raises NotMeasured."""
    name = "gauged-thread" if GUESTS[place] else "gauged"
    with gauges.started(kubectl, machine(name, io_thread=GUESTS[place], node=node)), console(kubectl, name) as guest:
        run_all(gauges.in_guest(guest), place, "/dev/vda", seconds, found)
        return gauges.acceleration(kubectl, name)


def measure(kubectl: Kubectl, rounds: int, seconds: int, mib: int) -> tuple[Readings, str]:
    node = gauges.nodes(kubectl)[0]
    claim = shared_claim(CLAIM)
    claim["spec"]["resources"]["requests"]["storage"] = f"{mib + 64}Mi"
    kubectl.create(claim)
    outside = gauges.a_pod(
        "gauge", "/bin/sh", "-c", f"export PATH=/bin; {written(mib)} && exec busybox sleep 1000000", node=node, claim=CLAIM
    )
    kubectl.create(outside)
    eventually(
        lambda: kubectl.try_run("exec", "gauge", "--", "/bin/test", "-f", "/claim/disk.img").returncode == 0,
        timeout=START_SECONDS,
        what="the file",
        interval=1.0,
    )
    found: Readings = {}
    ran = ""
    for _ in range(rounds):
        run_all(gauges.in_pod(kubectl, "gauge"), OUTSIDE, "/claim/disk.img", seconds, found)
        for place in GUESTS:
            ran = in_machine(kubectl, place, node, seconds, found)
    return found, ran


def report(found: Readings, ran: str, seconds: int, mib: int) -> dict[str, Any]:
    works: dict[str, Any] = {}
    for name in WORKS:
        outside = gauges.median([each.per_second for each in found[OUTSIDE][name]])
        works[name] = {
            place: {
                "mib_per_second": gauges.median([each.mib_per_second for each in readings[name]], 2),
                "per_second": gauges.median([each.per_second for each in readings[name]]),
                **(
                    {}
                    if place == OUTSIDE
                    else {"ratio": gauges.ratio(gauges.median([each.per_second for each in readings[name]]), outside)}
                ),
            }
            for place, readings in found.items()
        }
    rounds = len(found[OUTSIDE][next(iter(WORKS))])
    return {"acceleration": ran, "rounds": rounds, "seconds_each": seconds, "file_mib": mib, "cache": "none", "works": works}


def main() -> None:
    parser = gauges.parser("Measure a disk in guests and outside, on the test cluster.", "disks")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="how long each run takes (default 5)")
    parser.add_argument("--mib", type=int, default=512, help="size of the file in MiB (default 512)")
    arguments = parser.parse_args()
    kubectl = Kubectl(Path(arguments.kubeconfig), arguments.namespace)
    with gauges.namespace(kubectl):
        found, ran = measure(kubectl, arguments.rounds, arguments.seconds, arguments.mib)
    gauges.write(arguments.output, report(found, ran, arguments.seconds, arguments.mib))


if __name__ == "__main__":
    main()

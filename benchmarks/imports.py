"""``make bench-import``: duration and pod memory of an image import, compared with a plain download (docs/performance.md).

One image without holes, as raw and qcow2, each plain and in gzip, comes from a web server on the other node.
"""

from __future__ import annotations

import copy
import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import gauges
from benchmarks.gauges import MIB
from tests.cluster import processes
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import shared_claim, tiny_vm, with_disks
from tests.testbed import addons

FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "raw": (),
    "qcow2": ("qcow2",),
    "raw, gzip": ("gzip",),
    "qcow2, gzip": ("qcow2", "gzip"),
}
"""Commands that make each served file from the raw image."""
IMAGES: Final = "bench-images"
PLAIN: Final = "bench-plain"
TARGET: Final = "bench-imported"
PORT: Final = 8080
BLOCK: Final = 4096
PATIENCE_SECONDS: Final = 900
LOOK_SECONDS: Final = 0.2
_TIMES: Final = re.compile(r"begun ([0-9.]+) ended ([0-9.]+)")


class ImportFailed(Exception):
    """An import failed; the message has the machine's status."""


@dataclass(frozen=True)
class Sample:
    """One import, and the plain download of the same file."""

    seconds: float
    peak_memory_mib: float
    plain_seconds: float
    served_bytes: int


def file_of(format_: str) -> str:
    return "-".join(("image", *FORMATS[format_]))


def write_raw(path: Path, mib: int) -> None:
    with path.open("wb") as out:
        for _ in range(mib):
            out.write(b"".join(os.urandom(BLOCK // 2) + bytes(BLOCK // 2) for _ in range(MIB // BLOCK)))
        out.seek(510)
        out.write(b"\x55\xaa")


def write_images(directory: Path, formats: Sequence[str], mib: int) -> None:
    raw = directory / file_of("raw")
    write_raw(raw, mib)
    for format_ in formats:
        path = directory / file_of(format_)
        source = raw
        if "qcow2" in FORMATS[format_]:
            source = directory / file_of("qcow2")
            if not source.exists():
                subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(source)], check=True)
        if "gzip" in FORMATS[format_]:
            with source.open("rb") as given, gzip.open(path, "wb", compresslevel=1) as out:
                shutil.copyfileobj(given, out, MIB)
    for path in directory.iterdir():
        path.chmod(0o644)


def machine(name: str, url: str, node: str) -> dict[str, Any]:
    manifest = copy.deepcopy(tiny_vm(name, runStrategy="Once"))
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    manifest["spec"]["domain"]["devices"] |= {"graphics": [], "interfaces": []}
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": TARGET, "import": {"http": {"url": url}}}}
    return with_disks(manifest, disk)


def claimed(kubectl: Kubectl, name: str, mib: int) -> Path:
    claim = shared_claim(name)
    claim["spec"]["resources"]["requests"]["storage"] = f"{mib}Mi"
    kubectl.create(claim)
    kubectl("wait", "pvc", name, "--for=jsonpath={.status.phase}=Bound", "--timeout=60s", timeout=70)
    volume = kubectl.json("get", "pvc", name)["spec"]["volumeName"]
    return Path(kubectl.json("get", "pv", volume)["spec"]["hostPath"]["path"])


def imported(kubectl: Kubectl, url: str, node: str, mib: int) -> tuple[float, float]:
    directory = claimed(kubectl, TARGET, mib)
    name = "bench-import"
    kubectl.create(machine(name, url, node))
    try:
        return _watch(kubectl, name, directory / "disk.img")
    finally:
        kubectl("delete", "vm", name, "--timeout=180s", timeout=190)
        kubectl("delete", "pvc", TARGET, "--timeout=60s", timeout=70)
        addons.recycle_shared_volumes()


def _watch(kubectl: Kubectl, name: str, disk: Path) -> tuple[float, float]:
    pod = eventually(lambda: _running_pod(kubectl, name), timeout=gauges.START_SECONDS, what="the pod of the import")
    began, peak, until = 0.0, 0, time.monotonic() + PATIENCE_SECONDS
    while not disk.exists():
        found = processes.of_pod(pod)
        now = time.monotonic()
        if not began and any("importer" in command for command in found.values()):
            began = now
        peak = max(peak, sum(_memory_kib(pid) for pid in found))
        if now > until:
            raise ImportFailed(str(kubectl.json("get", "vm", name).get("status", {}).get("imports")))
        time.sleep(LOOK_SECONDS)
    if not began:
        raise ImportFailed("it was over before it was seen: the image is too small to be measured")
    return time.monotonic() - began, peak / 1024


def _running_pod(kubectl: Kubectl, name: str) -> dict[str, Any] | None:
    pods = kubectl.json("get", "pods", "-l", f"vm.kubevirt.io/name={name}")["items"]
    return next((each for each in pods if each["status"].get("phase") == "Running"), None)


def _memory_kib(pid: int) -> int:
    try:
        return processes.proportional_kib(pid)
    except (OSError, StopIteration):
        return 0


def downloaded(kubectl: Kubectl, url: str) -> float:
    command = (
        "export PATH=/bin; read begun rest </proc/uptime && busybox wget -q -O /claim/plain "
        f"{url} && busybox dd if=/dev/null of=/claim/plain conv=notrunc,fsync 2>/dev/null && read ended rest </proc/uptime"
        " && echo begun $begun ended $ended && busybox rm /claim/plain"
    )
    said = kubectl("exec", "plain", "--", "/bin/sh", "-c", command, timeout=PATIENCE_SECONDS)
    return plain_seconds(said)


def plain_seconds(said: str) -> float:
    found = _TIMES.search(said)
    if found is None:
        raise gauges.NotMeasured(f"the download said: {said.strip()[-300:] or 'nothing'}")
    return max(float(found[2]) - float(found[1]), 0.01)


def measure(kubectl: Kubectl, formats: Sequence[str], rounds: int, mib: int) -> dict[str, list[Sample]]:
    first, *others = gauges.nodes(kubectl)
    directory = claimed(kubectl, IMAGES, mib)
    print(f"  writing images of {mib} MiB", file=sys.stderr)
    write_images(directory, formats, mib)
    claimed(kubectl, PLAIN, mib)
    serve = ("/bin/busybox", "httpd", "-f", "-p", str(PORT), "-h", "/claim")
    kubectl.create(gauges.a_pod("images", *serve, node=others[0] if others else first, claim=IMAGES))
    kubectl.create(gauges.a_pod("plain", "/bin/busybox", "sleep", "1000000", node=first, claim=PLAIN))
    kubectl("wait", "pod", "images", "plain", "--for=condition=Ready", "--timeout=120s", timeout=130)
    host = kubectl.json("get", "pod", "images")["status"]["podIP"]
    found: dict[str, list[Sample]] = {each: [] for each in formats}
    for _ in range(rounds):
        for format_ in formats:
            url = f"http://{host}:{PORT}/{file_of(format_)}"
            plain = downloaded(kubectl, url)
            seconds, peak = imported(kubectl, url, first, mib)
            found[format_].append(Sample(seconds, peak, plain, (directory / file_of(format_)).stat().st_size))
            print(f"  {format_}: {seconds:.1f} s, {peak:.0f} MiB; plain {plain:.1f} s", file=sys.stderr)
    return found


def report(found: Mapping[str, list[Sample]], mib: int) -> dict[str, Any]:
    images = {}
    for format_, samples in found.items():
        seconds = gauges.median([each.seconds for each in samples], 2)
        plain = gauges.median([each.plain_seconds for each in samples], 2)
        images[format_] = {
            "imports": len(samples),
            "served_mib": round(samples[0].served_bytes / MIB, 1),
            "seconds": seconds,
            "mib_per_second": gauges.ratio(mib, seconds),
            "peak_memory_mib": gauges.median([each.peak_memory_mib for each in samples]),
            "plain_seconds": plain,
            "ratio": gauges.ratio(seconds, plain),
        }
    return {"image_mib": mib, "images": images}


def main() -> None:
    parser = gauges.parser("Measure imports of images on the test cluster.", "import")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is imported (default 3)")
    parser.add_argument("--mib", type=int, default=1024, help="size of the image in MiB (default 1024)")
    parser.add_argument("--only", action="append", choices=list(FORMATS), help="one of the formats (default all of them)")
    arguments = parser.parse_args()
    kubectl = Kubectl(Path(arguments.kubeconfig), arguments.namespace)
    with gauges.namespace(kubectl):
        found = measure(kubectl, arguments.only or list(FORMATS), arguments.rounds, arguments.mib)
    gauges.write(arguments.output, report(found, arguments.mib))


if __name__ == "__main__":
    main()

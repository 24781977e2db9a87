from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.cluster.api import is_true
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, shared_claim, with_disks
from tests.cluster.serving import PORT
from tests.cuts import client
from tests.cuts.cutting import Place
from tests.cuts.reading import Reader, until
from tests.cuts.watching import SECTORS, Disk, Watch, Watched, qemus
from tests.host.launcher.servers import IscsiTarget
from tests.testbed import layout

MOVER: Final = "mover"
OTHER: Final = "other"
STORED: Final = "stored"
BANDWIDTH: Final = {MOVER: "20Mi", OTHER: "5Mi"}
"""The memory phase is long enough to cut, and one of two guests arrives first."""
FINAL: Final = frozenset({"Succeeded", "Failed", "Cancelled"})
START_SECONDS: Final = 300
LOOK_SECONDS: Final = 4.0
CONSOLE_SECONDS: Final = 20
QUIET_SAMPLES: Final = 6
COUNT: Final = (
    "b=$(cut -c1-8 /proc/sys/kernel/random/boot_id); i=%d; "
    "(while :; do i=$((i+1)); printf '%%s %%d\\n' $b $i | dd of=/dev/vda bs=512 seek=$((i%%%d)) conv=fsync 2>/dev/null && echo tick $i; "
    "sleep 0.2; done) &\n"
)
SERVE: Final = f"mkdir -p /www; echo {client.WORD} >/www/index.html; httpd -p {PORT} -h /www\n"


class Guests:
    def __init__(self, kubectl: Kubectl, reader: Reader, watch: Watch) -> None:
        self.kubectl = kubectl
        self.reader = reader
        self._watch = watch

    def get(self, path: str) -> Any:
        """Return an object or list of our kinds in the namespace; empty if absent; None after another error."""
        return self.reader.get(f"/apis/kubevirt.io/v1alpha1/namespaces/{self.kubectl.namespace}/{path}")

    def status(self, guest: str) -> dict[str, Any]:
        found: dict[str, Any] = (self.get(f"virtualmachines/{guest}") or {}).get("status") or {}
        return found

    def migrations(self, guest: str) -> list[dict[str, Any]] | None:
        found = self.get("migrations")
        if found is None:
            return None
        mine = [each for each in found.get("items") or [] if each["spec"]["selector"]["name"] == guest]
        return sorted(mine, key=lambda each: (str(each["metadata"]["creationTimestamp"]), each["metadata"]["name"]))

    def migration(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (self.get(f"migrations/{name}") or {}).get("status") or {}
        return found

    def place(self, guest: str) -> Place:
        status = until(lambda: self.status(guest), seconds=60, what=f"the status of {guest}")
        source = str(status["nodeName"])
        return Place(source, next(each.name for each in layout.NODES if each.name != source), str(status["podUID"]))

    def qemus(self, guest: str) -> set[str]:
        return {each.pod_uid for each in qemus(self._known_as(guest))}

    def watched(self, guest: str) -> Watched:
        return self._watch.guests[guest]

    def is_started(self, guest: str) -> bool:
        return guest in self._watch.guests

    def start_on(self, guest: str, unit: Path, target: IscsiTarget) -> None:
        source = {"targetPortal": target.portal, "iqn": target.iqn, "lun": 1}
        self.kubectl.api.apply(_machine(guest, {"name": "data", "type": "ISCSI", "source": source}))
        self._watch.guests[guest] = Watched(self._known_as(guest), Disk(unit))

    def start(self, guest: str) -> None:
        api = self.kubectl.api
        api.apply(shared_claim(guest), blank_disk(guest))
        api.until("job", f"make-{guest}", is_true("Complete"), timeout=START_SECONDS, what=f"the disk of {guest}")
        volume = api.get("pvc", guest)["spec"]["volumeName"]
        api.apply(_machine(guest, claim_disk(guest)))
        disk = Disk(layout.shared_volumes() / volume / "disk.img")
        self._watch.guests[guest] = Watched(self._known_as(guest), disk)

    def count_on(self, guest: str, *, seconds: float = START_SECONDS, on_console: bool = False) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status, disk = self.status(guest), self.watched(guest).disk
            if number := _grown(disk):
                if not on_console or self._is_seen(guest, number):
                    return True
                continue
            if status.get("phase") == "Running" and str(status.get("podUID")) in self.qemus(guest):
                self._tell(guest, disk.newest())
        return False

    def _is_seen(self, guest: str, number: int) -> bool:
        try:
            with console(self.kubectl, guest) as screen:
                while int(screen.expect(r"tick (\d+)\r?\n", timeout=CONSOLE_SECONDS).group(1)) <= number:
                    pass
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            return False
        return True

    def _tell(self, guest: str, number: int) -> None:
        try:
            with console(self.kubectl, guest) as screen:
                if "tick" in screen.expect(r"GUEST-READY|tick \d+", timeout=CONSOLE_SECONDS).group(0):
                    return
                screen.type(SERVE)
                screen.type(COUNT % (number, SECTORS))
                screen.expect(r"tick \d+\r?\n", timeout=CONSOLE_SECONDS)
        except (AssertionError, OSError, subprocess.TimeoutExpired):  # not at its prompt yet, or unreachable
            return

    def _known_as(self, guest: str) -> str:
        return f"{self.kubectl.namespace}_{guest}"


def _machine(guest: str, disk: dict[str, Any]) -> dict[str, Any]:
    machine = with_disks(linux_vm(guest, evictionStrategy="LiveMigrate"), disk)
    machine["metadata"]["labels"] = {"app": guest, "cut": guest}
    machine["spec"]["domain"]["devices"]["graphics"] = []
    return machine


def _grown(disk: Disk) -> int:
    before, deadline = disk.newest(), time.monotonic() + LOOK_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if (number := disk.newest()) > before:
            return number
    return 0


def policies(namespace: str) -> Sequence[dict[str, Any]]:
    return [
        {
            "apiVersion": "kubevirt.io/v1alpha1",
            "kind": "MigrationPolicy",
            "metadata": {"name": f"{namespace}-{guest}"},
            "spec": {
                "selectors": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "virtualMachineSelector": {"matchLabels": {"cut": guest}},
                },
                "bandwidth": bandwidth,
                "completionTimeoutPerGiB": 1600,
            },
        }
        for guest, bandwidth in BANDWIDTH.items()
    ]

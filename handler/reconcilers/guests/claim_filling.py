"""Has attachment pods import images into claims, before a running guest gets them (``docs/decisions/disks.md``).

The attachment pod's process imports on request, and ends when its link does. Before this process writes that the guest, or the disk, is
gone, it kills the attachment pod: then another machine may get the claim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disk_imports
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import hot_plug
from handler.pods.launcher import Disconnected, LauncherRefused
from handler.pods.links import Holder
from handler.reconcilers.guests import guest_imports, guest_status
from handler.reconcilers.guests.claim_imports import CORRECT, Reports
from handler.reconcilers.guests.guest_ports import Ports
from launcher.protocol import messages


class Unfinished(Exception):
    """The image is not in the claim yet; the message is for users."""

    def __init__(self, message: str, *, seconds: float, has_failed: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        """Until the next look."""
        self.has_failed = has_failed


class ClaimFilling:
    """Has attachment pods import images."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._done: set[str] = set()
        self._reports: dict[str, messages.ImportStatus] = {}

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the state of pods without a link."""
        self._done = {uid for uid in self._done if is_alive(uid)}
        self._reports = {uid: report for uid, report in self._reports.items() if is_alive(uid)}

    def of(self, vm: Object) -> Reports:
        """Return the last reports of the machine's unfinished imports, by disk."""
        found = {str(disk["name"]): pod.uid for disk, pod in hot_plug.importing(vm)}
        return {name: self._reports[uid] for name, uid in found.items() if uid in self._reports}

    async def fill(self, vm: Object, disk: Object) -> None:
        """Import the image of this disk, if it has an import and its claim no image. Raises Unfinished until it has.

        Raises NotOfThisPod, NotTheDevice, StorageHangs, OSError or LauncherRefused.
        """
        pod = hot_plug.pod_of(vm, disk)
        if pod is None or disk_imports.of(disk) is None or pod.uid in self._done:
            return
        link, seconds = self._ports.links.acquire(pod.uid, Holder("vm", objects.key_of(vm))), self._ports.limits.import_seconds
        if link.connection is None:
            why = "has ended; virt-controller makes another one for the import" if link.gone else "does not listen yet"
            raise Unfinished(f"pod {pod.name} {why}", seconds=seconds)
        await self._ports.node.give_claim(pod.uid)
        try:
            pending = link.connection.begin(messages.Import(_machine(vm, disk)))
            if not await pending.answered(within=self._ports.limits.start_patience_seconds):
                pending.forget()
                raise Unfinished(f"pod {pod.name} does not answer", seconds=seconds)
        except LauncherRefused as refused:
            if refused.reason != "NotReady":
                raise
            self._note(vm, disk, pod.uid, refused.status)
        except Disconnected as error:
            raise Unfinished(f"pod {pod.name}: {error}", seconds=seconds) from error
        else:
            self._done.add(pod.uid)
            if self._reports.pop(pod.uid, None) is not None:
                self._ports.emit(vm, "Normal", guest_imports.SUCCEEDED, f"disk {str(disk['name'])!r}: its claim has the image")

    async def end(self, vm: Object, names: Collection[str] | None = None) -> None:
        """Kill the processes of attachment pods that may import, of these disks or of all; the pods' objects stay.

        Raises StorageHangs or OSError until the processes have ended.
        """
        for disk, pod in hot_plug.importing(vm):
            if names is None or disk["name"] in names:
                await self._ports.node.end_attachment(pod.uid)
                self._done.discard(pod.uid)
                self._reports.pop(pod.uid, None)

    def _note(self, vm: Object, disk: Object, pod_uid: str, told: messages.Status) -> None:
        name, before = str(disk["name"]), self._reports.get(pod_uid)
        report = next(iter(told.imports), messages.ImportStatus(""))
        report = self._reports[pod_uid] = dataclasses.replace(report, disk=name)
        source = disk_imports.shown(disk_imports.of(disk) or {})
        if before is None:
            self._ports.emit(
                vm, "Normal", guest_imports.STARTED, guest_status.printable(f"disk {name!r}: importing the image from {source}")
            )
        if report.phase != "Retrying":
            begins = f"disk {name!r}: the import of its image from {source} begins"  # a pod has one import, which waits for no other
            how = begins if report.phase == "Pending" else guest_imports.progress(report, source)
            raise Unfinished(how, seconds=self._ports.limits.import_seconds)
        why = guest_status.printable(f"disk {name!r}: {report.message or 'the import failed'}; {CORRECT}")
        if before is None or report.failures > before.failures:
            self._ports.emit(vm, "Warning", conditions.IMPORT_FAILED, why)
        raise Unfinished(why, seconds=self._ports.limits.import_seconds, has_failed=True)


def _machine(vm: Object, disk: Object) -> messages.Machine:
    alone = {"devices": {"disks": [{**disk, "name": layout.ATTACHMENT_VOLUME}]}}
    return messages.Machine(objects.namespace_of(vm), objects.name_of(vm), objects.uid_of(vm), alone, "qemu")

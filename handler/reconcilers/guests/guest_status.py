"""Converts a launcher's report to ``VirtualMachine.status``. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks, graphics, network_disks, plugin_disks, vsock
from apiserver.apis.virt.hardware import interfaces as hardware_interfaces
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, managed_save, operations, phases, power, summary
from apiserver.apis.virt.places import forms, layout
from apiserver.apis.virt.spec import chosen_cpu, hot_plug
from apiserver.apis.virt.spec import running as running_form
from apiserver.apis.virt.spec.described import domain_of
from handler.network.binding import Interface
from handler.probes.tally import UNKNOWN, Verdict
from handler.reconcilers.guests import disk_faults, guest_devices, guest_operations, guest_probes
from launcher.protocol import messages

MAX_MESSAGE: Final = 1024
"""Enough for the last lines of QEMU or libvirt."""
MAX_REASON: Final = 64
"""Of a word from libvirt, which the pod may have changed."""
MAX_DETAIL: Final = 256
_ROOM: Final = re.compile(r"has (?:space|room) for [0-9]+(?:[KMGTPE]i| bytes)?")
"""Also of older launchers, which write ``room`` or the exact bytes."""

RESULTS: Final[Mapping[messages.EndingKind, str]] = {
    "shutdown": power.RESULT_SUCCEEDED,
    "shutdown-requested": power.RESULT_STOPPED,
    "destroyed": power.RESULT_STOPPED,
    "crashed": power.RESULT_FAILED,
    "start-failed": power.RESULT_FAILED,
    "saved": power.RESULT_SUSPENDED,
}
"""Without ``migrated``: the guest continues elsewhere."""

WATCHDOG_FIRED: Final = "WatchdogFired"
"""Also the reason of Ready if it ended the attempt."""

POWERED_OFF: Final = "PoweredOff"
"""The domain was destroyed, so the guest could not write data in its memory."""
SEE_PANIC: Final = "to see why, open kubectl virt console with --wait 5m before the next start"
GIVE_AN_IMAGE: Final = "the guest starts when the image exists: copy it there, or set source.create or source.import and restart"
DISK_FULL: Final = "I/O error: no room"
"""Replaces libvirt's reason, the same for every I/O error."""
PAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "user": (conditions.USER, conditions.PAUSED_ON_REQUEST),
    "I/O error": ("IOError", "a read or write of a disk failed; fix the storage, then run kubectl virt unpause to retry"),
    DISK_FULL: (
        conditions.DISK_FULL,
        "the storage of a disk is full, no data was lost: expand the PersistentVolumeClaim or free space; the guest then continues "
        "automatically, or at once after kubectl virt unpause",
    ),
    "saving": (summary.SUSPENDING, "the guest's memory is being saved"),
    "watchdog": ("Watchdog", "the guest's watchdog fired; kubectl virt unpause continues the guest"),
    "crashed": (conditions.GUEST_PANICKED, "the guest panicked"),
}
"""Reason and message of Paused, by libvirt's reason."""


_PAUSED_AT_START: Final = frozenset({"starting up", "migrating"})
"""libvirt's reasons after ``start --paused``; ``migrating`` for a guest that resumed from its saved memory."""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt to run a guest ended; ``image_used``: its start failed, because its saved memory had been used before."""

    result: str
    """One of ``power.RESULTS``."""
    reason: str
    message: str
    image_used: bool = False


def end_of(ending: messages.Ending) -> End | None:
    """Return the attempt's End for this ending of the guest; None for ``migrated``."""
    result = RESULTS.get(ending.kind)
    if result is None:
        return None
    reason = {
        "shutdown": "GuestPoweredOff",
        "shutdown-requested": "ShutDown",
        "destroyed": POWERED_OFF,
        "crashed": "Crashed",
        "start-failed": "StartFailed",
        "saved": "Suspended",
    }[ending.kind]
    if ending.kind == "crashed" and (ending.panicked or ending.watchdog):
        reason = conditions.GUEST_PANICKED if ending.panicked else WATCHDOG_FIRED
    message = ending.message or {"shutdown": "the guest powered itself off", "shutdown-requested": "the guest shut down"}.get(
        ending.kind, reason
    )
    if ending.panicked:
        message = f"{message}; {SEE_PANIC}"
    elif result == power.RESULT_FAILED and ending.log and ending.log[-1] not in message:
        message = f"{message}; last lines of QEMU's log: {' | '.join(ending.log[-3:])}"
    return End(result, reason, printable(message), ending.image_used)


def printable(text: str) -> str:
    """Return the hypervisor's text as one limited line without control characters."""
    return one_line(text, MAX_MESSAGE)


def running(
    vm: Object,
    observed: messages.Status,
    interfaces: Sequence[Interface] | None,
    now: datetime,
    verdict: Verdict = UNKNOWN,
    barrier: str = "",
) -> Object:
    """Return the status of a machine with a domain; the old one without a domain or a change.

    ``interfaces`` None: unknown, the old value stays. ``barrier``: what prevents a migration, unknown to virt-launcher.
    """
    old = vm.get("status") or {}
    domain = observed.domain
    if domain is None:
        return dict(old)
    stamp = times.to_rfc3339(now)
    phase = phases.STOPPING if observed.stopping else phases.RUNNING
    status = phases.enter(old, phase, now)
    status["observedGeneration"] = objects.generation_of(vm)
    status["domain"] = _domain(vm, domain)
    if interfaces is not None:
        found = of_machine(vm, interfaces)
        status["interfaces"] = [_interface(each) for each in found]
        own = next((each.addresses for each in found if each.addresses and each.is_own), None)
        if own and forms.pod_ip(own[0]) is not None:  # virt-api refuses invalid addresses, which a guest may report
            status["podIP"] = own[0]
    status["graphics"] = [{"type": each["type"]} for each in graphics.defaulted(domain_of(vm))]
    for field in ("vsock", "imports", managed_save.FIELD):  # a guest that runs has used its image
        status.pop(field, None)
    if domain.devices or domain.changes:  # older launchers report none
        status["devices"] = guest_devices.listed(vm, domain.devices)
    if vsock.defaulted(domain_of(vm)) and domain.cid in vsock.CIDS:
        status["vsock"] = {"cid": domain.cid}
    status["attempts"] = _with_running_time(vm, old, stamp)
    barrier = observed.not_migratable or barrier or _plugin_barrier(vm, interfaces)
    for condition in _conditions(vm, observed, domain, barrier, guest_probes.unready(vm, verdict)):
        if condition["type"] == conditions.MIGRATABLE and not barrier and _is_held_by_claims(old):
            continue  # only virt-controller knows claims
        status = objects.with_status_condition(status, condition, now=stamp)
    if unreachable := _unreachable_servers(vm, observed.servers_silent):
        message = printable(f"{unreachable}; reads and writes of this disk block or fail until it does")
        away = objects.new_condition(vm, conditions.DISKS_READY, "False", conditions.DISK_SERVER_SILENT, message)
        return objects.with_status_condition(status, away, now=stamp)
    if failing := disk_faults.condition(vm, observed.disk_faults):
        return objects.with_status_condition(status, failing, now=stamp)
    return _with_disks_found(vm, status, stamp)


def _domain(vm: Object, domain: messages.DomainStatus) -> Object:
    found: Object = {"state": domain.state, "reason": one_line(domain.reason, MAX_REASON), "type": domain.type}
    chosen = chosen_cpu.chosen(vm)
    if chosen is not None and (domain.type, domain.cpu_model) == ("kvm", chosen.model):
        found["cpuModel"] = chosen.model
    supported = [each for each in messages.LIVE_CHANGES if each in domain.changes]
    return {**found, "liveChanges": supported} if supported else found


def _with_disks_found(vm: Object, status: Object, stamp: str) -> Object:
    if missing := hot_plug.without_claims(vm):
        message = printable("; ".join(f"disk {each['name']}: {each['message']}" for each in missing))
        lacking = objects.new_condition(vm, conditions.DISKS_READY, "False", str(missing[0]["reason"]), message)
        return objects.with_status_condition(status, lacking, now=stamp)
    condition = objects.condition(status.get("conditions"), conditions.DISKS_READY)
    if condition is None or condition.get("status") == "True":
        return status
    found = objects.new_condition(vm, conditions.DISKS_READY, "True", conditions.DISKS_FOUND, "")
    return objects.with_status_condition(status, found, now=stamp)


def of_machine(vm: Object, interfaces: Sequence[Interface]) -> list[Interface]:
    """Return those of ``interfaces`` that the running guest's spec names, in the spec's order."""
    places = {each["name"]: place for place, each in enumerate(hardware_interfaces.defaulted(domain_of(vm)))}
    return sorted((each for each in interfaces if each.name in places), key=lambda each: places[each.name])


def _interface(interface: Interface) -> Object:
    found: Object = {"name": interface.name, "mac": interface.mac, "ipAddresses": list(interface.addresses)}
    if interface.addresses:
        found["ipAddress"] = interface.addresses[0]
    return found


def _with_running_time(vm: Object, old: Mapping[str, Any], stamp: str) -> list[Object]:
    number = power.current_attempt(vm)
    return [
        {**each, "runningTime": each.get("runningTime") or stamp} if each.get("number") == number else dict(each)
        for each in old.get("attempts") or ()
    ]


def _plugin_barrier(vm: Object, interfaces: Sequence[Interface] | None) -> str:
    made = {each.name: each for each in interfaces or ()}
    for each in hardware_interfaces.defaulted(domain_of(vm)):
        if each["type"] != hardware_interfaces.PLUGIN:
            continue
        if (found := made.get(each["name"])) is None:
            return f"interface {each['name']!r}: plugin {each.get('plugin')} has not set it up since virt-handler started"
        if not found.live_migration:
            return f"interface {each['name']!r}: plugin {each.get('plugin')} does not support live migration"
    return ""


def _is_held_by_claims(status: Object) -> bool:
    found = objects.condition(status.get("conditions"), conditions.MIGRATABLE)
    return found is not None and (found.get("status"), found.get("reason")) == ("False", conditions.DISKS_NOT_SHARED)


def _conditions(vm: Object, observed: messages.Status, domain: messages.DomainStatus, barrier: str, unready: str) -> list[Object]:
    paused, why = domain.state in ("paused", "pmsuspended"), _pause(domain)
    if domain.state == "paused" and domain.reason in _PAUSED_AT_START and power.wants_paused(vm):
        why = PAUSES["user"]
    if observed.stopping:
        ready = ("False", "Stopping", "the guest was asked to shut down")
    elif unready:  # before the pause, which has its own condition
        ready = ("False", conditions.NOT_PROBED, unready)
    elif paused:
        ready = ("False", conditions.PAUSED, f"the guest is {conditions.paused(why[1])}")
    else:
        ready = ("True", "GuestRunning", "the guest runs")
    pause = ("True", *why) if paused else ("False", "Running", "")
    migratable = ("False", "NotMigratable", printable(barrier)) if barrier else ("True", "Migratable", "")
    found = {conditions.READY: ready, conditions.PAUSED: pause, conditions.MIGRATABLE: migratable}
    return [objects.new_condition(vm, kind, *told) for kind, told in found.items()]


def _pause(domain: messages.DomainStatus) -> tuple[str, str]:
    if domain.state == "pmsuspended":
        return conditions.GUEST_SUSPENDED, "the guest suspended itself to memory; kubectl virt unpause wakes it"
    kind = DISK_FULL if domain.full and domain.reason == "I/O error" else domain.reason
    reason, message = PAUSES.get(kind, ("Paused", f"libvirt's reason: {one_line(domain.reason, MAX_REASON)}"))
    return reason, f"{message} ({one_line(domain.detail, MAX_DETAIL)})" if domain.detail else message


def ended(vm: Object, end: End, now: datetime, told: Sequence[messages.OperationStatus] = ()) -> Object:
    """Return the status after the current attempt ended; ``told`` is the launcher's last report of its operations."""
    old = vm.get("status") or {}
    stamp = times.to_rfc3339(now)
    image = None
    if end.result == power.RESULT_SUSPENDED:
        image = managed_save.saved(vm, managed_save.claim_of(running_form.spec_of(vm)), end.message, stamp)
        if image is None:  # a launcher, which a guest may control, reports an unrequested save
            end = replace(end, result=power.RESULT_FAILED)
    status = phases.without_guest(phases.enter(old, power.PHASES[end.result], now))
    if image is not None:
        status[managed_save.FIELD] = image
        end = replace(end, message=managed_save.in_words(image, objects.name_of(vm)))
    elif end.image_used:
        status.pop(managed_save.FIELD, None)
    status["observedGeneration"] = objects.generation_of(vm)
    number = power.current_attempt(vm)
    status["attempts"] = [
        {**each, "endTime": stamp, "result": end.result, "message": end.message}
        if each.get("number") == number and not power.has_ended(each)
        else dict(each)
        for each in old.get("attempts") or ()
    ]
    if operations.of(vm):
        status["operations"] = guest_operations.with_results(vm, told, now)
        operations.end_with_attempts(status)
    ready = objects.new_condition(vm, conditions.READY, "False", end.reason, end.message)
    return objects.with_status_condition(status, ready, now=stamp)


def not_understood(vm: Object, why: str, now: datetime) -> Object:
    """Return the status with Ready Unknown, for a launcher with another protocol; equal to the old one if already written."""
    rest = (
        "virt-handler cannot start its guest"
        if phases.phase_of(vm) == phases.SCHEDULED
        else "its guest keeps running; restart the machine to fix this"
    )
    message = f"virt-launcher cannot be reached: {printable(why)}; {rest}"
    told = objects.new_condition(vm, conditions.READY, "Unknown", conditions.LAUNCHER_NOT_UNDERSTOOD, message)
    return objects.with_status_condition(vm.get("status") or {}, told, now=times.to_rfc3339(now))


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """Why the network of the guest's pod is not set up."""

    reason: str
    message: str


def with_network(vm: Object, status: Object, fault: NetworkFault | None, now: datetime) -> Object:
    """Return the status with NetworkReady False for this fault; without one, True if it was False."""
    condition = objects.condition(status.get("conditions"), conditions.NETWORK_READY)
    if fault is None and (condition is None or condition.get("status") == "True"):
        return status
    told = ("False", fault.reason, printable(fault.message)) if fault is not None else ("True", "Ready", "")
    return objects.with_status_condition(status, objects.new_condition(vm, conditions.NETWORK_READY, *told), now=times.to_rfc3339(now))


def with_disks_fault(vm: Object, status: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status with DisksReady False, for a running guest or one that cannot start here yet."""
    told = objects.new_condition(vm, conditions.DISKS_READY, "False", reason, printable(message))
    if stored := objects.condition(
        dig_vm(vm, "status", "conditions"), conditions.DISKS_READY
    ):  # its transition counts, not one of this pass
        kept = [dict(stored) if each["type"] == conditions.DISKS_READY else each for each in status.get("conditions") or ()]
        status = {**status, "conditions": kept}
    return objects.with_status_condition(status, told, now=times.to_rfc3339(now))


def waiting_for_disks(
    vm: Object, names: Sequence[str], message: str, now: datetime, *, full: bool, unresolved: Collection[str] = ()
) -> Object:
    """Return the status while a launcher waits for a disk: for room (``full``; ``message`` says where), else for a server or an image.

    ``names``: the disks that wait; ``unresolved``: for a host name.
    """
    if full:
        return waiting_for_room(vm, message, now)
    return waiting_for_servers(vm, names, now, unresolved) or waiting_for_images(vm, names, now)


def waiting_for_images(vm: Object, names: Sequence[str], now: datetime) -> Object:
    """Return the status while the pod waits for images in claims.

    Of ``names``, from the launcher, those of other machines are ignored.
    """
    return waiting(vm, conditions.DISK_IMAGE_NOT_FOUND, printable(f"{_missing_images(vm, names)}; {GIVE_AN_IMAGE}"), now)


def waiting_for_servers(vm: Object, names: Sequence[str], now: datetime, unresolved: Collection[str] = ()) -> Object | None:
    """Return the status if some of these disks wait for a server, else None.

    Of ``names``, from the launcher, those without a server are ignored.
    """
    unreachable = _unreachable_servers(vm, names, unresolved)
    return (
        waiting(vm, conditions.DISK_SERVER_SILENT, printable(f"{unreachable}; the guest starts when it does"), now) if unreachable else None
    )


def _unreachable_servers(vm: Object, names: Sequence[str], unresolved: Collection[str] = ()) -> str:
    told = frozenset(names)
    named = ((each["name"], _server(each)) for each in disks.defaulted(domain_of(vm)) if each["name"] in told)
    why = dict.fromkeys(unresolved, ": its name does not resolve")
    return "; ".join(f"disk {name!r}: {server} does not answer{why.get(name, '')}" for name, server in named if server)


def _server(disk: Object) -> str:
    if plugin_disks.is_plugin(disk):
        return f"the NBD server of plugin {plugin_disks.plugin_of(disk)}"
    places = ", ".join(f"{host} port {port}" for host, port in network_disks.endpoints(disk))
    return f"{disk['type']} server {places}" if network_disks.is_network(disk) else ""


def waiting_for_room(vm: Object, message: str, now: datetime) -> Object:
    """Return the status while the pod waits for room in claims."""
    return waiting(vm, conditions.CLAIM_TOO_SMALL, printable(message), now)


def is_news_of_disks(vm: Object, status: Object) -> bool:
    """Return whether DisksReady's reason or message changed, except in the amount of room, which changes all the time."""
    before, after = (objects.condition(each.get("conditions"), conditions.DISKS_READY) or {} for each in (vm.get("status") or {}, status))
    texts = [_ROOM.sub("", str(each.get("message"))) for each in (before, after)]
    return before.get("reason") != after.get("reason") or texts[0] != texts[1]


def waiting(vm: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status while the start waits for a disk: DisksReady False for this reason, Ready False; Scheduled if still Unknown."""
    old = vm.get("status") or {}
    stamp = times.to_rfc3339(now)
    status = phases.enter(old, phases.SCHEDULED, now) if phases.phase_of(vm) == phases.UNKNOWN else dict(old)
    for kind, why in ((conditions.DISKS_READY, reason), (conditions.READY, conditions.DISKS_NOT_READY)):
        status = objects.with_status_condition(status, objects.new_condition(vm, kind, "False", why, message), now=stamp)
    return status


def _missing_images(vm: Object, names: Sequence[str]) -> str:
    claims = {
        disk["name"]: str(objects.dig(disk, "source", "name") or "").lower()
        for disk in disks.defaulted(domain_of(vm))
        if disk.get("type") == "PersistentVolumeClaim"
    }
    told = frozenset(names)  # of unknown length: iterate over the machine's own disks
    missing = [
        f"disk {name!r} has no image yet: file {layout.DISK_IMAGE} not found in PersistentVolumeClaim {claim}"
        for name, claim in claims.items()
        if name in told
    ]
    return "; ".join(missing) or f"a disk has no image yet: file {layout.DISK_IMAGE} not found in its PersistentVolumeClaim"


def with_disks_found(vm: Object, now: datetime) -> Object:
    """Return the status once the images exist: DisksReady, if False, is True. This starts the time limit of the start."""
    return _with_disks_found(vm, dict(vm.get("status") or {}), times.to_rfc3339(now))

"""Edits that a running guest takes without a restart (``docs/decisions/life-cycle.md``).

virt-handler requests a change where the desired value of a setting differs from the guest's, which virt-launcher reports, and writes the
outcome into ``status.changes``. On :data:`APPLIED`, virt-api copies the setting to the running form (``running``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu, disk_io_tune, disks, given, interfaces, memory, resources
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.spec import hot_plug, hot_plug_interfaces, running
from apiserver.apis.virt.spec.running import Difference

What = Literal["disk.ioTune", "disk.size", "interface.state", "cpu.sockets", "memory.guest"]
"""A device's kind, and its setting."""
KNOWN: Final[tuple[What, ...]] = get_args(What)
FIELD: Final = "changes"
PENDING: Final = "Pending"
FAILED: Final = "Failed"
APPLIED: Final = "Applied"
"""virt-api removes the entry when it has copied the setting."""
STATES: Final = (PENDING, FAILED, APPLIED)
MAX_CHANGES: Final = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting's place in ``spec.domain``, and functions that return its devices and a device's value as comparable text."""

    place: str
    """``devices.`` and the list of devices with this setting, or another member of ``spec.domain``."""
    field: str
    """With dots for a field of a field."""
    defaulted: Callable[[Domain], list[Object]]
    """Returns the devices with this setting, with defaults."""
    value: Callable[[Mapping[str, Any]], str]
    """Returns a device's setting; equal texts have the same effect."""


SETTINGS: Final[Mapping[What, Setting]] = MappingProxyType(
    {
        "disk.ioTune": Setting("devices.disks", "ioTune", disks.defaulted, lambda disk: disk_io_tune.text(disk_io_tune.limits(disk))),
        "disk.size": Setting("devices.disks", "source.create", disks.on_written_claims, lambda disk: str(disks.created_bytes(disk))),
        "interface.state": Setting("devices.interfaces", "state", interfaces.on_taps, interfaces.state_of),
        "cpu.sockets": Setting("cpu", "sockets", lambda domain: [domain.get("cpu") or {}], lambda each: str(cpu.vcpus({"cpu": each}))),
        "memory.guest": Setting(
            "memory", "guest", lambda domain: [domain.get("memory") or {}], lambda each: str(memory.guest_bytes({"memory": each}))
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """A setting, of a device, the processors or the memory, that changes in a running guest."""

    what: What
    name: str = ""
    """The device's; empty for processors and memory."""

    def __str__(self) -> str:
        setting, device = SETTINGS[self.what], f"[{self.name}]" if self.name else ""
        return f"spec.domain.{setting.place}{device}.{setting.field}"


PROCESSORS: Final = Change("cpu.sockets")
MEMORY: Final = Change("memory.guest")


def values(domain: Domain) -> dict[Change, str]:
    """Return a domain's settings that can change in a running guest, as a mapping from ``Change`` to value."""
    return {
        Change(what, str(device.get("name") or "")): setting.value(device)
        for what, setting in SETTINGS.items()
        for device in setting.defaulted(domain)
    }


def wanted(vm: Mapping[str, Any]) -> dict[Change, str]:
    """Return the spec's values, by ``Change``, that this guest can get while running; none of a machine with XML."""
    desired, runs = vm.get("spec") or {}, running.spec_of(vm)
    if desired.get("domainXML") or runs.get("domainXML"):
        return {}
    domain, of_guest = desired.get("domain") or {}, runs.get("domain") or {}
    there = values(of_guest)
    found = {change: value for change, value in values(domain).items() if change in there}
    claims, of_guests = _claims(domain), _claims(of_guest)
    for change in [each for each in found if each.what == "disk.size" and claims[each.name] != of_guests[each.name]]:
        del found[change]
    if not _gets_processors(of_guest, domain):
        found.pop(PROCESSORS, None)
    if not resources.can_resize_memory(of_guest, domain):
        found.pop(MEMORY, None)
    return found


def _claims(domain: Domain) -> dict[str, str | None]:
    return {str(each["name"]): disks.claim_of(each) for each in disks.defaulted(domain)}


def _gets_processors(runs: Domain, desired: Domain) -> bool:
    several = interfaces.has_several_queues(runs) or bool((runs.get("devices") or {}).get("blockMultiQueue"))
    return cpu.grows(runs, desired) and not several


def of(vm: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the settings that differ between guest and spec, of :func:`wanted`, in order."""
    if not dig_vm(vm, "status", running.RUNNING):
        return ()
    there = values(running.spec_of(vm).get("domain") or {})
    return tuple(change for change, value in wanted(vm).items() if there[change] != value)


def rest(vm: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the differences that need a restart: all but supported changes that have not failed."""
    supported = dig_vm(vm, "status", "domain", "liveChanges") or ()
    failed = {entry.get("path") for entry in entries(vm) if entry.get("state") == FAILED}
    live = [change for change in of(vm) if change.what in supported and str(change) not in failed]
    plugged = [name for name in hot_plug.live(vm) if hot_plug.path_of(name) not in failed]
    cards = [name for name in hot_plug_interfaces.live(vm) if hot_plug_interfaces.path_of(name) not in failed]
    if not live and not plugged and not cards:
        return running.differences(vm)
    spec = vm.get("spec") or {}
    runs = running.spec_of(vm)
    domain = with_changes(runs.get("domain") or {}, spec.get("domain") or {}, live)
    domain = hot_plug.with_disks(domain, spec["domain"], plugged) if plugged else domain
    return running.between(
        spec, {**runs, "domain": hot_plug_interfaces.with_interfaces(domain, spec["domain"], cards) if cards else domain}
    )


def limits(vm: Mapping[str, Any], found: Sequence[Difference]) -> str:
    """Return why these differences need a restart where other values would not; empty if no value is live with this virt-launcher."""
    desired, runs = running.domains_of(vm)
    takes = dig_vm(vm, "status", "domain", "liveChanges") or ()
    told = []
    if PROCESSORS.what in takes:
        told.append(_limit_of_sockets(desired, runs))
    if MEMORY.what in takes and any(each.path in (str(MEMORY), "spec.domain.memory") for each in found):
        told.append(_limit_of_memory(desired, runs))
    if hot_plug_interfaces.INTERFACE in takes:
        told += dict.fromkeys(hot_plug_interfaces.limit(each) for each in found)
    return "; ".join(f"live, {each}" for each in told if each)


def _limit_of_sockets(desired: Domain, runs: Domain) -> str:
    most, wanted = cpu.max_sockets(runs), cpu.counts(desired)["sockets"]
    if wanted > most:
        return f"sockets go up to maxSockets ({most})"
    return "sockets only grow" if wanted < cpu.counts(runs)["sockets"] else ""


def _limit_of_memory(desired: Domain, runs: Domain) -> str:
    most = (runs.get("memory") or {}).get("maxGuest")
    if most is None:
        return "memory changes only for a guest with memory.maxGuest at its start"
    if not memory.grows(runs) or resources.can_resize_memory(runs, desired):
        return ""
    if memory.guest_bytes(desired) > memory.max_guest_bytes(runs):
        return f"memory goes up to maxGuest ({most})"
    return "memory changes by multiples of 2Mi, up to resources.limits.memory"


def entries(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return ``status.changes``."""
    return tuple(dig_vm(vm, "status", FIELD) or ())


def record(vm: Object) -> None:
    """Copy what the guest took, by ``status.changes``, to ``status.running``, and drop those entries, in place."""
    status = vm.get("status") or {}
    told = status.get(FIELD)
    if not told:
        return
    taken = {entry.get("path") for entry in told if entry.get("state") == APPLIED}
    if left := [entry for entry in told if entry.get("state") != APPLIED]:
        status[FIELD] = left
    else:
        del status[FIELD]
    if found := [change for change in of(vm) if str(change) in taken]:
        _take(vm, found)
    if gone := [str(each["name"]) for each in hot_plug.removed(vm) if hot_plug.path_of(str(each["name"])) in taken]:
        hot_plug.take(vm, gone)
    if cards := [name for name in _differing_cards(vm) if hot_plug_interfaces.path_of(name) in taken]:
        hot_plug_interfaces.take(vm, cards)


def _differing_cards(vm: Mapping[str, Any]) -> list[str]:
    found = (*hot_plug_interfaces.coming(vm), *hot_plug_interfaces.removed(vm)) if dig_vm(vm, "status", running.RUNNING) else ()
    return [str(each["name"]) for each in found]


def _take(vm: Object, found: list[Change]) -> None:
    running.set_domain(vm, with_changes(vm["status"][running.RUNNING].get("domain") or {}, vm["spec"].get("domain") or {}, found))


def follows(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether ``status.running`` differs between ``old`` and ``new`` only in what the running guest took from the spec.

    That is: it got settings, cards and disks in attachment pods, and lost devices that the spec lacks.
    """
    left = of(new)
    expected = {**old, "status": dict(old.get("status") or {})}
    if taken := [change for change in of(old) if change not in left]:
        _take(expected, taken)
    there = [(each["name"], disks.medium_of(each)) for each in (*hot_plug.kept(new), *hot_plug.removed(new))]
    if gone := [str(each["name"]) for each in hot_plug.removed(expected) if (each["name"], disks.medium_of(each)) not in there]:
        hot_plug.take(expected, gone)
    hot_plug.record(expected)
    if cards := [name for name in _differing_cards(expected) if name not in _differing_cards(new)]:
        hot_plug_interfaces.take(expected, cards)
    forms = (running.without_reservations(each.get("status") or {}).get(running.RUNNING) for each in (expected, new))
    return bool(next(forms) == next(forms))


def with_changes(domain: Object, desired: Domain, changes: list[Change]) -> Object:
    """Return ``domain``, itself unchanged, with the settings of ``desired`` that these changes name."""
    for what in dict.fromkeys(change.what for change in changes):
        found, there = [change.name for change in changes if change.what == what], dict(_devices(desired, SETTINGS[what]))
        domain = _with_settings(domain, SETTINGS[what], {name: there[name] for name in found})
    return domain


def device_of(domain: Domain, change: Change) -> Object:
    """Return, as written, the device (or ``cpu``, ``memory``) of a change in ``domain``, which must have it."""
    return next(device for name, device in _devices(domain, SETTINGS[change.what]) if name == change.name)


def with_setting(domain: Domain, change: Change, device: Mapping[str, Any]) -> Object:
    """Return a copy of ``domain`` with the setting of ``change`` as ``device`` (:func:`device_of`) has it."""
    return _with_settings(domain, SETTINGS[change.what], {change.name: device})


def _with_settings(domain: Domain, setting: Setting, by_name: Mapping[str, Mapping[str, Any]]) -> Object:
    found = [_replaced(own, setting.field, by_name[name]) if name in by_name else own for name, own in _devices(domain, setting)]
    member, _, devices = setting.place.partition(".")
    return given.with_devices(domain, devices, found) if devices else {**domain, member: found[0]}


def _devices(domain: Domain, setting: Setting) -> Iterator[tuple[str, Object]]:
    member, _, devices = setting.place.partition(".")
    if not devices:
        yield "", domain.get(member) or {}
        return
    every = {"disks": disks.defaulted, "interfaces": interfaces.defaulted}[devices](domain)
    written = (domain.get(member) or {}).get(devices) or every
    for device, own in zip(every, written, strict=True):
        yield str(device["name"]), own


def _replaced(own: Object, field: str, device: Mapping[str, Any]) -> Object:
    field, _, inner = field.partition(".")
    if inner:
        return {**own, field: _replaced(own.get(field) or {}, inner, device.get(field) or {})}
    others = {key: value for key, value in own.items() if key != field}
    return {**others, field: copy.deepcopy(device[field])} if device.get(field) is not None else others

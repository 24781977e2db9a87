"""Settings of a running guest, and the machine after a change. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from apiserver.apis.virt.hardware import disk_io_tune
from apiserver.apis.virt.spec import live_changes
from apiserver.apis.virt.spec.live_changes import Change
from launcher.hypervisor.port import Device, Observation
from launcher.main.decisions import machines
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages


def settings(machine: messages.Machine | None, seen: Observation) -> tuple[messages.SettingStatus, ...]:
    """Return the status of each setting that can change live; none without a machine, or with XML, which stays as written."""
    return () if machine is None or machine.domain_xml else tuple(_settings(machine, seen))


def _settings(machine: messages.Machine, seen: Observation) -> Iterator[messages.SettingStatus]:
    if seen.vcpus:
        yield messages.SettingStatus(live_changes.PROCESSORS.what, "", str(seen.vcpus))
    if (memory := seen.memory) is not None:
        requested = "" if memory.requested == memory.plugged else str(memory.at_boot + memory.requested)
        yield messages.SettingStatus(live_changes.MEMORY.what, "", str(memory.at_boot + memory.plugged), requested)
    sizes = {change.name: value for change, value in live_changes.values(machine.domain).items() if change.what == "disk.size"}
    for device, name in machines.named(machine, seen.devices):
        if device.kind == "disk" and name in sizes:
            yield messages.SettingStatus("disk.size", name, sizes[name])
        for what in live_changes.KNOWN:
            if (value := setting_of(what, device)) is not None:
                yield messages.SettingStatus(what, name, value)


def setting_of(what: messages.LiveChange, device: Device) -> str | None:
    """Return a device's I/O limits or link state as ``live_changes.values`` writes it; None if it lacks that, or for another ``what``."""
    match what:
        case "disk.ioTune":
            return disk_io_tune.text(dict(device.limits)) if device.kind == "disk" else None
        case "interface.state":
            return None if device.is_up is None else "up" if device.is_up else "down"
        case "cpu.sockets" | "disk.size" | "memory.guest":
            return None


def device_of(machine: messages.Machine, found: Iterable[Device], request: messages.Change) -> Device | None:
    """Return the device with the I/O limits or link state that a request changes; None if missing, or if it changes something else."""
    named = machines.named(machine, found)
    return next((each for each, name in named if name == request.name and setting_of(request.what, each) is not None), None)


def machine_with(machine: messages.Machine | None, request: messages.Change) -> messages.Machine:
    """Return the machine with the requested setting, or raise RequestRefused if it cannot have it."""
    change = Change(request.what, request.name)
    if machine is None or machine.domain_xml or change not in live_changes.values(machine.domain):
        raise RequestRefused("Invalid", f"this machine does not have {change}")
    changed = dataclasses.replace(machine, domain=live_changes.with_setting(machine.domain, change, request.device))
    try:
        value_in(changed, change)
    except (AttributeError, TypeError, ValueError) as error:
        raise RequestRefused("Invalid", f"{change}: {error}") from error
    return changed


def value_in(machine: messages.Machine, change: Change) -> str:
    """Return a setting's value, as text, in a machine's specification. Raises KeyError without it."""
    return live_changes.values(machine.domain)[change]

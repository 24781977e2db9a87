"""The desired and the running hardware of a machine (``docs/decisions/life-cycle.md``).

The *desired* form is the spec. The *running* form is the hardware of a guest's start; it takes only the edits of ``live_changes``. When a
user edits a machine with a guest, virt-api copies :data:`FIELDS` from the old spec to ``status.running``, until the guest ends or an edit
restores the running hardware. It ignores clients' writes.

Locks, pods, migration targets, virt-handler and virt-launcher use the running form (:func:`spec_of`), the next attempt the desired form.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig, generation_of
from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.hardware import devices
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.kinds import dig_vm

FIELDS: Final = ("domain", "domainXML", "accessCredentials", "managedSave", "lifecycle")
"""A guest keeps these from its start to its end."""
RUNNING: Final = "running"
"""Field of the status with the copy."""
RESERVED: Final = "reservedClaims"
"""Field of the copy with the names of ``reserved_claims``."""
POD_RESIZE: Final = "podResize"
"""Field with the memory that the guest's pod has room for."""
DEVICES: Final = "devices"
OF_A_GUEST: Final = (RUNNING, POD_RESIZE, DEVICES, "changes", "volumeStatus")
"""virt-api removes these fields in each write that leaves a machine without a guest."""
MAX_TOLD: Final = 8
"""Maximum differences in a message."""
MAX_WORDS: Final = 700
"""Maximum characters of these."""
_SPEC: Final = Path("spec")
_DEVICES: Final = "spec.domain.devices"
_NO_DEVICES: Final[Domain] = {"devices": {"disks": [], "interfaces": []}}

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting or device with different desired and running hardware."""

    path: str
    """Path of the setting, or list and name of the device: ``spec.domain.devices.disks[data]``."""
    kind: Kind = "changed"

    def __str__(self) -> str:
        return self.path if self.kind == "changed" else f"{self.path} ({self.kind})"


def spec_of(vm: Mapping[str, Any]) -> Object:
    """Return the spec with the guest's hardware of ``status.running``; fields outside :data:`FIELDS` are the spec's."""
    spec: Object = vm.get("spec") or {}
    kept = dig_vm(vm, "status", RUNNING)
    if not isinstance(kept, dict):
        return spec
    others = {key: value for key, value in spec.items() if key not in FIELDS}
    return {**others, **{key: kept[key] for key in FIELDS if kept.get(key) is not None}}


def domains_of(vm: Mapping[str, Any]) -> tuple[Domain, Domain]:
    """Return (desired domain, running domain). If either is XML, both have only empty lists of disks and interfaces."""
    desired, runs = vm.get("spec") or {}, spec_of(vm)
    if desired.get("domainXML") or runs.get("domainXML"):
        return _NO_DEVICES, _NO_DEVICES
    return desired.get("domain") or {}, runs.get("domain") or {}


def differences(vm: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the ``Difference``s between spec and ``status.running``; empty without that."""
    return between(vm.get("spec") or {}, spec_of(vm)) if dig_vm(vm, "status", RUNNING) else ()


def between(desired: Object, runs: Object) -> tuple[Difference, ...]:
    """Return the ``Difference``s between a desired spec and a running one."""
    return tuple(_differences(desired, runs))


def note_edit(obj: Object, old: Object, *, has_guest: bool) -> None:
    """Copy the running hardware to ``status.running`` if an update changes it, or remove a copy that the update restores.

    ``obj``, changed in place, is the updated machine with the status of ``old``. Without a guest nothing changes.
    """
    if not has_guest or obj["spec"] == old["spec"]:
        return
    status, runs = obj["status"], spec_of(old)
    if not any(_differences(obj["spec"], runs)):
        status.pop(RUNNING, None)
    elif not status.get(RUNNING):
        kept = {key: copy.deepcopy(runs[key]) for key in FIELDS if runs.get(key) is not None}
        status[RUNNING] = {"generation": generation_of(old), **kept}


def set_domain(vm: Object, domain: Object) -> None:
    """Set the domain in ``status.running``, in place; remove all of ``status.running`` if it then equals the spec."""
    vm["status"][RUNNING] = {**vm["status"][RUNNING], "domain": domain}
    if not differences(vm):
        del vm["status"][RUNNING]


def keep(obj: Object, old: Object, *, has_guest: bool) -> None:
    """Replace ``status.running`` of ``obj`` by that of ``old``, in place; without a guest, remove all fields ``OF_A_GUEST``.

    ``podResize`` is copied only if ``obj`` lacks it, as are a suspended guest's devices.
    """
    status = obj.get("status")
    if not isinstance(status, dict):
        return
    status.pop(RUNNING, None)
    if not has_guest:
        for field in OF_A_GUEST:
            status.pop(field, None)
        return
    of_image = (DEVICES,) if status.get("managedSave") is not None else ()
    for field in (RUNNING, POD_RESIZE, *of_image):
        if (kept := dig(old, "status", field)) and field not in status:
            status[field] = copy.deepcopy(kept)


def without_reservations(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status without the reservations, which virt-api changes with other fields."""
    kept = status.get(RUNNING)
    return status if not kept else {**status, RUNNING: {key: value for key, value in kept.items() if key != RESERVED}}


def words(found: Sequence[Difference]) -> str:
    """Return the first differences, and how many follow, in one line for people."""
    told = [str(each) for each in found[:MAX_TOLD]]
    if rest := found[MAX_TOLD:]:
        told.append(f"{len(rest)} more")
    return one_line(", ".join(told), MAX_WORDS)


def _differences(desired: Object, runs: Object) -> Iterator[Difference]:
    domain, of_guest = (each.get("domain") or {} for each in (desired, runs))
    paths = [str(each) for each in devices.differing(domain, of_guest, _SPEC.child("domain"))]
    if paths:
        wanted, there = (devices.compared(each)["devices"] for each in (domain, of_guest))
        lists = dict.fromkeys(name for path in paths if isinstance(wanted.get(name := _device_field(path), there.get(name)), list))
        for name in lists:
            yield from _of_list(f"{_DEVICES}.{name}", wanted.get(name, []), there.get(name, []))
        yield from (Difference(path) for path in paths if _device_field(path) not in lists)
    for field in FIELDS[1:]:
        if _compared(desired, field) != _compared(runs, field):
            yield Difference(str(_SPEC.child(field)))


def _compared(spec: Object, field: str) -> object:
    found = spec.get(field) or None
    return (found or {}).get("claimName") if field == "managedSave" else found  # a running pod can get the node's disk


def _device_field(path: str) -> str:
    return path.removeprefix(f"{_DEVICES}.").partition("[")[0].partition(".")[0]


def _of_list(path: str, desired: Sequence[Object], runs: Sequence[Object]) -> Iterator[Difference]:
    """Yield the differing devices of two unequal lists by name; the list itself if they have no names, or only their order differs."""
    named = all("name" in each for each in (*desired, *runs))
    found = list(_of_devices(path, *({each["name"]: each for each in listed} for listed in (desired, runs)))) if named else []
    yield from found or [Difference(path)]


def _of_devices(path: str, wanted: Mapping[str, object], there: Mapping[str, object]) -> Iterator[Difference]:
    for name in (*there, *(each for each in wanted if each not in there)):
        if name not in wanted:
            yield Difference(f"{path}[{name}]", "removed")
        elif name not in there:
            yield Difference(f"{path}[{name}]", "added")
        elif wanted[name] != there[name]:
            yield Difference(f"{path}[{name}]")

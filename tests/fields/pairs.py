from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from apiserver.apis.meta import decoding, merge_patch
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from tests.fields import families, schema
from tests.hostile import Step, at, places, replaced

Domain = dict[str, Any]
Place = tuple[Step, ...]

_ALL: Final = schema.fields(schema.definitions(types.VirtualMachine))
_BELOW: Final = f"{schema.DOMAIN}."
_SEVERAL: Final = " or "
FIELDS: Final = {each.path.removeprefix(_BELOW): each for each in _ALL if each.is_leaf and each.path.startswith(_BELOW)}
ALLOWED: Final = Allowed(
    vsock=True,
    macvtap=True,
    storage_plugins=frozenset({"p", "p2"}),
    host_disks=("/var/vms",),
    network_plugins=frozenset({"isolated", "isolated2"}),
)
EXAMPLE: Final[Domain] = families.example(_ALL)["domain"]
_DATA: Final = {name: each for disk in EXAMPLE["devices"]["disks"] for name, each in disk.get("source", {}).items() if "Data" in name}
_SEED: Final = {"devices": {"disks": [{"name": "seed", "type": "CloudInitNoCloud", "source": _DATA}]}}
_FILES: Final = {"devices": {"disks": [{"name": "files", "type": "ConfigMap", "device": "disk", "source": {"name": "c"}}]}}
_DEDICATED: Final = {"cores": 2, "dedicatedCpuPlacement": True, "maxSockets": None}
_BESIDE: Final[Mapping[str, Domain]] = {
    "cpu.isolateEmulatorThread": {"cpu": {**_DEDICATED, "numa": None}},
    "cpu.numa.guestMappingPassthrough": {"cpu": {**_DEDICATED, "numa": {"cells": None}}},
    "memory.guest": {"memory": {"maxGuest": "4Gi", "hugepages": None}},
    "memory.hugepages": {"memory": {"guest": "1Gi", "maxGuest": None}},
    "resources.limits.memory": {"memory": {"guest": "64Mi"}},
    "features.hyperv.synictimer": {"clock": {"timer": {"hyperv": {}}}},
    "firmware.bootloader.efi.persistent": {"devices": {"tpm": {"persistent": True}}},
    "firmware.persistentState": {"firmware": {"bootloader": {"bios": None, "efi": {"persistent": True}}}},
    "devices.disks[].type": _FILES,
    "devices.disks[].device": _FILES,
    **dict.fromkeys((f"devices.disks[].source.{each}" for each in _DATA), _SEED),
    "devices.video.heads": {"devices": {"video": {"type": "virtio"}}},
    "devices.tpm": {"firmware": {"bootloader": {"efi": {"persistent": True}}, "persistentState": {"claimName": "c"}}},
    "devices.blockMultiQueue": {"cpu": {"cores": 2}, "devices": {"disks": EXAMPLE["devices"]["disks"][:1]}},
    "devices.networkInterfaceMultiqueue": {"cpu": {"cores": 2}},
}
"""Merge patches that allow a second value of a field, by its path's start."""
_OTHER: Final[Mapping[str, str]] = {
    "cpu.model": "EPYC",
    "cpu.features[].name": "aes",
    "machine.type": "pc",
    "clock.timezone": "Europe/Paris",
    "devices.disks[].source.items[].fieldRef.fieldPath": "metadata.name",
    "devices.disks[].source.items[].resourceFieldRef.divisor": "1Ki",
}
"""Other values, where the type suggests none."""


def machine(domain: Domain) -> dict[str, Any]:
    metadata = {"name": "testvm", "namespace": "default", "uid": "u-1"}
    return {"kind": "VirtualMachine", "metadata": metadata, "spec": {"domain": copy.deepcopy(domain)}}


def of(key: str) -> Iterator[tuple[Domain, Domain]]:
    beside = next((each for prefix, each in _BESIDE.items() if key.startswith(prefix)), {})
    found = [each for each in places(EXAMPLE) if "".join("[]" if isinstance(step, int) else f".{step}" for step in each) == f".{key}"]
    for each in found[:1] if beside else found:
        family, place = _family(each)
        domain = merge_patch.apply(family, beside)
        both = filter(None, (_sound(domain, place, other) for other in _others(key, at(domain, place))))
        yield from itertools.islice(both, None if _SEVERAL in FIELDS[key].type else 1)


def _family(place: Place) -> tuple[Domain, Place]:
    depth = 2 if place[0] == "devices" else 1
    part, above, below = at(EXAMPLE, place[:depth]), place[:depth], place[depth:]
    if isinstance(part, list):
        part, below = [at(part, below[:1])], (0, *below[1:])
    for step in reversed(above):
        part = {step: part}
    return {"memory": {"guest": "1Gi"}, **part}, (*above, *below)


def _others(key: str, value: Any) -> list[Any]:
    words, found = FIELDS[key].type.split(_SEVERAL), list[Any]()
    if key in _OTHER:
        found = [_OTHER[key]]
    elif isinstance(value, bool):
        found = [not value]
    elif isinstance(value, int):
        found = [value + 1, value * 2, value - 1]
    elif isinstance(value, list):
        found = [[*value, f"{value[0]}2"]]
    elif isinstance(value, dict):
        found = [{name: f"{each}2" for name, each in value.items()} or None]
    elif len(words) > 1:
        found = words
    elif words == ["quantity"]:
        found = [
            re.sub(r"\d+", lambda digits: str(2 * int(digits[0])), value),
            re.sub(r"\d+", lambda digits: str(int(digits[0]) // 2), value),
        ]
    else:
        found = [f"{value}2", f"{value[:-1]}4", f"4{value[1:]}", "e30="]
    return [each for each in found if each != value]


def _sound(domain: Domain, place: Place, other: Any) -> tuple[Domain, Domain] | None:
    def changed(domain: Domain) -> Domain:
        return replaced(domain, place, other, missing=other is None)  # type: ignore[no-any-return]  # it returns what it is given

    count = _faults(domain) + _faults(changed(domain))
    while count:
        others = [each for each in places(domain) if each[: len(place)] != place[: len(each)] and isinstance(each[-1], str)]
        for each in sorted(others, key=lambda each: len(str(at(domain, each)))):
            less = replaced(domain, each, None, missing=True)
            if (left := _faults(less) + _faults(changed(less))) < count:
                domain, count = less, left
                break
        else:
            return None
    return domain, changed(domain)


def _faults(domain: Domain) -> int:
    """Return the number of virt-api's errors; a type error counts 100 times, because it hides others."""
    vm = machine(domain)
    if wrong := sum(map(len, decoding.read(types.VirtualMachine, vm))):
        return 100 * wrong
    defaults.default_virtual_machine(vm)
    return len(validation.validate_virtual_machine(vm, ALLOWED))

"""Validates formats, lengths and numbers in the status of a VirtualMachine or Migration, for every writer.

Unchanged values are not validated (ratcheting, KEP-4008); elements of lists are matched by key or equality.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from apiserver.apis.meta import names
from apiserver.apis.meta.objectmeta import validate_labels
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, not_supported, too_many
from apiserver.apis.virt.hardware import disks, graphics, interfaces, vsock
from apiserver.apis.virt.lifecycle import freezing, keys, migration_attempts, migration_policies, operations, phases, power, progress
from apiserver.apis.virt.lifecycle.domainstates import DOMAIN_STATES
from apiserver.apis.virt.places import forms
from apiserver.apis.virt.spec import live_changes
from apiserver.apis.virt.v1alpha1.migration_policy import validate_bandwidth

Object = Mapping[str, Any]
Place = tuple[Any, str | int]
"""(place of the parent, field or position). Only an error turns it into a path."""
Form = Callable[[Any, Any, Place], Iterable[FieldError]]
"""Takes (value, previous value or None, place); yields errors."""

STATUS: Final = Path("status")
_STATUS: Final[Place] = (None, "status")
MAX_CONDITIONS: Final = 16
MAX_ADDRESSES: Final = 32
MAX_CPU_FEATURES: Final = 32
MAX_LIVE_CHANGES: Final = 32
MAX_DEVICES: Final = disks.MAX_DISKS + interfaces.MAX_INTERFACES
DOMAIN_TYPES: Final = ("kvm", "qemu")


def validate_virtual_machine_status(obj: Object, old: Object) -> list[FieldError]:
    """Return errors in changed values of a VirtualMachine's status."""
    return list(_MACHINE(obj.get("status") or {}, old.get("status") or {}, _STATUS))


def validate_migration_status(obj: Object, old: Object) -> list[FieldError]:
    """Return errors in changed values of a Migration's status. A final phase must stay: it has released its lock."""
    found = list(_MIGRATION(obj.get("status") or {}, old.get("status") or {}, _STATUS))
    before = phases.phase_of(old)
    if before in phases.MIGRATION_FINAL and phases.phase_of(obj) != before:
        found.append(forbidden(STATUS.child("phase"), f"{before} is final"))
    return found


def _path(place: Place) -> Path:
    holder, step = place
    if holder is None:
        return Path(str(step))
    above = _path(holder)
    return above.index(step) if isinstance(step, int) else above.child(step)


def _text(errors: Callable[[str], list[str]]) -> Form:

    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        if value and value != old:
            yield from (invalid(_path(place), value, each) for each in errors(value))

    return validate


def _number(least: int, most: int | None = None) -> Form:
    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        if value < least and value != old:
            yield invalid(_path(place), value, f"must be greater than or equal to {least}")
        if most is not None and value > most and value != old:
            yield invalid(_path(place), value, f"must be less than or equal to {most}")

    return validate


def _one_of(supported: tuple[str, ...]) -> Form:
    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        if value and value not in supported and value != old:
            yield not_supported(_path(place), value, supported)

    return validate


def _record(fields: Mapping[str, Form]) -> Form:
    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        before = old or {}
        for field, form in fields.items():
            given, earlier = value.get(field), before.get(field)
            if given is not None and given != earlier:
                yield from form(given, earlier, (place, field))

    return validate


def _list(limit: int, form: Form) -> Form:
    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        before = old or ()
        if len(value) > max(limit, len(before)):
            yield too_many(_path(place), len(value), limit)
            return
        stored: frozenset[str] | None = None
        for position, each in enumerate(value):
            if position < len(before) and before[position] == each:
                continue
            for wrong in form(each, None, (place, position)):
                stored = frozenset(map(repr, before)) if stored is None else stored
                if repr(each) not in stored:
                    yield wrong

    return validate


def _keyed_list(limit: int, key: str, form: Form) -> Form:
    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        before = old or ()
        if len(value) > max(limit, len(before)):
            yield too_many(_path(place), len(value), limit)
            return
        stored = {each.get(key): each for each in before}
        was_unique = len(stored) == len(before)
        seen: set[Any] = set()
        for position, each in enumerate(value):
            which = each[key]
            if which in seen and was_unique:
                yield duplicate(_path(((place, position), key)), which)
            seen.add(which)
            if each != (earlier := stored.get(which)):
                yield from form(each, earlier, (place, position))

    return validate


def _labels(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
    if value != old:
        yield from validate_labels(value, _path(place))


def _all(*given: Form) -> Form:
    def validate(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
        for form in given:
            yield from form(value, old, place)

    return validate


def _growing(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
    numbers = [each["number"] for each in value]
    if numbers == [each.get("number") for each in old or ()]:
        return
    for position, (earlier, later) in enumerate(itertools.pairwise(numbers), 1):
        if later < earlier:
            yield invalid(
                _path(((place, position), "number")), later, "must be greater than the previous number, because the newest is last"
            )


_NAME: Final = _text(names.subdomain_errors)
_UID: Final = _text(forms.uid_errors)
_IP: Final = _text(forms.ip_errors)
_POD_IP: Final = _text(forms.pod_ip_errors)
_MOMENT: Final = _text(forms.moment_errors)
_MESSAGE: Final = _text(forms.message_errors)
_COUNT: Final = _number(0)
_GUESTS_WORD: Final = _text(forms.words_errors)
_CPU_WORD: Final = _text(names.label_value_errors)

_CONDITIONS: Final = _keyed_list(
    MAX_CONDITIONS,
    "type",
    _record(
        {
            "type": _text(names.qualified_name_errors),
            "reason": _text(forms.reason_errors),
            "message": _MESSAGE,
            "lastTransitionTime": _MOMENT,
            "observedGeneration": _COUNT,
        }
    ),
)


def _timestamps(known: tuple[str, ...]) -> Form:
    return _list(phases.MAX_TIMESTAMPS, _record({"phase": _one_of(known), "time": _MOMENT}))


_ATTEMPT: Final = _record(
    {
        "number": _number(1),
        "generation": _COUNT,
        "podName": _NAME,
        "nodeName": _NAME,
        "startNodeName": _NAME,
        "startTime": _MOMENT,
        "runningTime": _MOMENT,
        "stopTime": _MOMENT,
        "endTime": _MOMENT,
        "message": _MESSAGE,
    }
)
_PARAMETERS: Final = _record(
    {
        "keys": _list(keys.MAX_KEYS, _text(keys.errors)),
        "holdMilliseconds": _number(1, keys.MAX_HOLD_MILLISECONDS),
        "unfreezeTimeoutSeconds": _number(1, freezing.MAX_UNFREEZE_TIMEOUT_SECONDS),
    }
)
_OPERATION: Final = _record(
    {
        "parameters": _PARAMETERS,
        "id": _UID,
        "number": _number(1, operations.MAX_NUMBER),
        "percent": _number(0, 100),
        "attempt": _COUNT,
        "time": _MOMENT,
        "message": _MESSAGE,
        "completionTime": _MOMENT,
    }
)
_INTERFACE: Final = _record(
    {
        "name": _text(names.label_errors),
        "mac": _text(forms.mac_errors),
        "ipAddress": _IP,
        "ipAddresses": _list(MAX_ADDRESSES, _IP),
    }
)


_GUEST: Final = _record(
    {
        "agent": _record({"version": _GUESTS_WORD}),
        "os": _record({"id": _GUESTS_WORD, "name": _GUESTS_WORD, "version": _GUESTS_WORD, "kernelRelease": _GUESTS_WORD}),
        "hostname": _GUESTS_WORD,
        "timezone": _GUESTS_WORD,
        "interfaces": _list(
            interfaces.MAX_INTERFACES,
            _record({"name": _text(names.label_errors), "device": _GUESTS_WORD, "ipAddresses": _list(MAX_ADDRESSES, _IP)}),
        ),
        "time": _MOMENT,
    }
)


_DEVICE: Final = _record(
    {
        "name": _text(names.label_errors),
        "target": _text(forms.device_errors),
        "address": _text(forms.device_errors),
    }
)
_VOLUME: Final = _record(
    {
        "name": _text(names.label_errors),
        "claimName": _NAME,
        "reason": _text(forms.reason_errors),
        "message": _MESSAGE,
        "hotplugVolume": _record({"attachPodName": _NAME, "attachPodUID": _UID}),
    }
)
_POD_RESIZE: Final = _record({"guestMemoryBytes": _COUNT, "reason": _text(forms.reason_errors), "message": _MESSAGE})
_IMPORT: Final = _record(
    {
        "disk": _text(names.label_errors),
        "transferredBytes": _COUNT,
        "totalBytes": _COUNT,
        "failures": _COUNT,
        "message": _MESSAGE,
    }
)


_CHANGE: Final = _record({"path": _text(forms.path_errors), "state": _one_of(live_changes.STATES), "message": _MESSAGE, "time": _MOMENT})


def _anything(_value: Any, _old: Any, _place: Place) -> Iterable[FieldError]:  # noqa: ANN401 - any JSON value
    return ()


_MACHINE: Final = _record(
    {
        "observedGeneration": _COUNT,
        "conditions": _CONDITIONS,
        "attempt": _COUNT,
        "attempts": _all(_keyed_list(power.MAX_ATTEMPTS_KEPT, "number", _ATTEMPT), _growing),
        "nodeName": _NAME,
        "podName": _NAME,
        "podUID": _UID,
        "podIP": _POD_IP,
        "cpu": _record({"model": _CPU_WORD, "features": _list(MAX_CPU_FEATURES, _CPU_WORD), "message": _MESSAGE}),
        "domain": _record(
            {
                "state": _one_of(DOMAIN_STATES),
                "reason": _text(forms.words_errors),
                "type": _one_of(DOMAIN_TYPES),
                "cpuModel": _CPU_WORD,
                "liveChanges": _list(MAX_LIVE_CHANGES, _CPU_WORD),
            }
        ),
        "interfaces": _list(interfaces.MAX_INTERFACES, _INTERFACE),
        "imports": _list(disks.MAX_DISKS, _IMPORT),
        "guest": _GUEST,
        "graphics": _list(graphics.MAX_GRAPHICS, _anything),
        "devices": _list(MAX_DEVICES, _DEVICE),
        "volumeStatus": _keyed_list(disks.MAX_DISKS, "name", _VOLUME),
        "podResize": _POD_RESIZE,
        "running": _record({"generation": _COUNT}),  # the rest was validated as a spec
        "changes": _list(live_changes.MAX_CHANGES, _CHANGE),
        "vsock": _record({"cid": _number(vsock.CIDS.start, vsock.CIDS.stop - 1)}),
        "managedSave": _record(
            {
                "id": _UID,
                "claimName": _NAME,
                "file": _text(forms.image_file_errors),
                "digest": _text(forms.digest_errors),
                "machineType": _CPU_WORD,
                "nodeName": _NAME,
                "sizeBytes": _COUNT,
                "attempt": _COUNT,
                "time": _MOMENT,
            }
        ),
        "migration": _record(
            {
                "name": _NAME,
                "uid": _UID,
                "sourceNode": _NAME,
                "sourcePod": _NAME,
                "targetNode": _NAME,
                "targetPod": _NAME,
                "startTime": _MOMENT,
                "endTime": _MOMENT,
                "phase": _one_of(phases.MIGRATION_PHASES),
            }
        ),
        "request": _record(
            {"time": _MOMENT, "attempt": _COUNT, "generation": _COUNT, "gracePeriodSeconds": _COUNT, "nodeSelector": _labels}
        ),
        "calls": _keyed_list(power.MAX_CALLS_KEPT, "id", _record({"id": _UID, "verb": _text(names.label_errors)})),
        "pause": _record({"time": _MOMENT, "attempt": _COUNT, "generation": _COUNT}),
        "operations": _all(_keyed_list(operations.MAX_KEPT, "id", _OPERATION), _growing),
        "runStrategyGeneration": _COUNT,
        "phaseTransitionTimestamps": _timestamps(phases.VM_PHASES),
    }
)


def _bandwidth(value: Any, old: Any, place: Place) -> Iterator[FieldError]:  # noqa: ANN401 - any JSON value
    if value != old:
        yield from validate_bandwidth(value, _path(place))


_OPTIONS: Final = _record(
    {
        "bandwidth": _bandwidth,
        "maxDowntimeMilliseconds": _number(*migration_policies.BOUNDS["maxDowntimeMilliseconds"]),
        "parallelConnections": _number(*migration_policies.BOUNDS["parallelConnections"]),
        "completionTimeoutSeconds": _number(1),
    }
)
_MIGRATION_ATTEMPT: Final = _record(
    {
        "number": _number(1, migration_attempts.MAX_ATTEMPTS),
        "targetNode": _NAME,
        "targetPod": _NAME,
        "reason": _one_of(migration_attempts.REASONS),
        "message": _MESSAGE,
        "endTime": _MOMENT,
    }
)
_MIGRATION: Final = _record(
    {
        "conditions": _CONDITIONS,
        "observedGeneration": _COUNT,
        "sourceNode": _NAME,
        "sourcePod": _NAME,
        "sourcePodUID": _UID,
        "targetNode": _NAME,
        "targetPod": _NAME,
        "targetPodUID": _UID,
        "targetPodIPs": _list(MAX_ADDRESSES, _POD_IP),
        "targetAddress": _text(forms.host_port_errors),
        "attempt": _number(1, migration_attempts.MAX_ATTEMPTS),
        "attempts": _all(_keyed_list(migration_attempts.MAX_ATTEMPTS, "number", _MIGRATION_ATTEMPT), _growing),
        "policy": _NAME,
        "options": _OPTIONS,
        "startTime": _MOMENT,
        "endTime": _MOMENT,
        "message": _MESSAGE,
        "progress": _record({**dict.fromkeys(progress.NUMBERS, _COUNT), "lastUpdateTime": _MOMENT}),
        "phaseTransitionTimestamps": _timestamps(phases.MIGRATION_PHASES),
    }
)

"""All devices of a domain with defaults, and a comparison of domains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.hardware import (
    consoles,
    disks,
    filesystems,
    given,
    gpus,
    graphics,
    host_devices,
    inputs,
    interfaces,
    memory,
    panic,
    redirected_devices,
    resources,
    rng,
    sound,
    tpm,
    video,
    vsock,
    watchdog,
)
from apiserver.apis.virt.hardware.given import Domain

_Place: TypeAlias = tuple[str | int, ...]
_UNWRITTEN: Final = {
    "filesystems": filesystems.defaulted,
    "gpus": gpus.defaulted,
    "hostDevices": host_devices.defaulted,
    "inputs": inputs.defaulted,
    "panic": panic.defaulted,
    "redirectedDevices": redirected_devices.defaulted,
    "rng": rng.defaulted,
    "sound": sound.defaulted,
    "tpm": tpm.defaulted,
    "video": video.compared,
    "vsock": vsock.defaulted,
    "watchdog": watchdog.defaulted,
}
"""Not written into an object, because they follow from other lists, or are rare."""


def defaulted(domain: Domain) -> Object:
    """Return ``disks``, ``interfaces``, ``graphics`` and ``consoles`` of ``devices`` with their defaults."""
    return {
        "disks": disks.defaulted(domain),
        "interfaces": interfaces.defaulted(domain),
        "graphics": graphics.defaulted(domain),
        "consoles": consoles.defaulted(domain),
    }


def differing(one: Domain, other: Domain, path: Path) -> list[Path]:
    """Return the paths of fields that differ between two domains, with defaults; ``1024Mi`` equals ``1Gi``.

    ``path``: the domain's, with which they begin. Omits a default that follows from another such field.
    """
    places = _differing(compared(one), compared(other))
    said = [each for each in places if _is_said(one, each) or _is_said(other, each)]
    return [_path(each, path) for each in said or places]


def _differing(one: object, other: object, place: _Place = ()) -> list[_Place]:
    """Return the innermost places where two JSON values differ. Lists of different lengths are one place."""
    if one == other:
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [found for key in keys for found in _differing(one.get(key), other.get(key), (*place, key))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for at, (left, right) in pairs for found in _differing(left, right, (*place, at))]
    return [place]


def _is_said(domain: Any, place: _Place) -> bool:  # noqa: ANN401 - any JSON value
    for step in _steps(place):
        is_there = step in domain if isinstance(domain, dict) else isinstance(domain, list) and isinstance(step, int) and step < len(domain)
        if not is_there:
            return False
        domain = domain[step]
    return True


def _steps(place: _Place) -> Iterator[str | int]:
    for step in place:
        yield from (step,) if isinstance(step, int) else step.split(".")  # in resources, two steps form one key


def _path(place: _Place, path: Path) -> Path:
    for step in place:
        path = path.index(step) if isinstance(step, int) else path.child(step)
    return path


def compared(domain: Domain) -> Object:
    """Return a domain with defaults and normalized amounts, for comparisons."""
    found: Object = {
        **given.said(domain.get("devices") or {}),  # fields without defaults and unknown fields
        **defaulted(domain),
        "disks": disks.compared(domain),
        "interfaces": interfaces.compared(domain),
        "autoattachMemBalloon": memory.has_balloon(domain),
        "networkInterfaceMultiqueue": interfaces.has_several_queues(domain),
        **{field: of_domain(domain) for field, of_domain in _UNWRITTEN.items()},
    }
    return {**domain, "memory": memory.compared(domain), "resources": resources.compared(domain), "devices": found}

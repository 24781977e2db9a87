"""Devices of the node: ``devices.hostDevices``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given, gpus, interfaces
from apiserver.apis.virt.hardware.given import Domain


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.hostDevices``; empty by default."""
    return given.devices(domain, "hostDevices", [])


def passed_through(domain: Domain) -> dict[str, Object]:
    """Return the node's devices that the guest gets, also SR-IOV interfaces, by path in ``spec.domain``: ``devices.gpus[0]``."""
    lists = {"gpus": gpus.defaulted(domain), "hostDevices": defaulted(domain), "interfaces": interfaces.defaulted(domain)}
    listed = ((field, index, each) for field, devices in lists.items() for index, each in enumerate(devices))
    return {f"devices.{field}[{index}]": each for field, index, each in listed if field != "interfaces" or each["type"] == interfaces.SRIOV}

"""Converts the guest agent's answers to the status."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.apis.meta.objects import Object
from launcher.protocol import messages


def status_of(told: Object) -> messages.AgentStatus:
    """Return the status of a connected guest agent, made of its answers."""
    system = told.get("os") or {}
    return messages.AgentStatus(
        connected=True,
        version=(told.get("agent") or {}).get("version") or "",
        hostname=told.get("hostname") or "",
        os_id=system.get("id") or "",
        os_name=system.get("prettyName") or system.get("name") or "",
        os_version=system.get("versionId") or system.get("version") or "",
        kernel_release=system.get("kernelRelease") or "",
        timezone=(told.get("timezone") or {}).get("name") or "",
    )


def interfaces_of(told: Object, names: Mapping[str, str]) -> tuple[messages.InterfaceStatus, ...]:
    """Return the guest's interfaces, with the specification's names by MAC address."""
    return tuple(
        messages.InterfaceStatus(
            names.get(each.get("mac", ""), ""), each.get("mac", ""), each.get("device", ""), tuple(each.get("ipAddresses") or ())
        )
        for each in told.get("interfaces") or ()
    )


def names_of(machine: messages.Machine | None) -> Mapping[str, str]:
    """Return the names of a machine's interfaces by their MAC addresses in lower case."""
    return {interface.mac.lower(): interface.name for interface in machine.interfaces} if machine else {}

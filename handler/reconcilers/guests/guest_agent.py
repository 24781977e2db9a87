"""Converts the guest agent's answers to ``status.guest`` and the condition ``AgentConnected``. Pure.

The guest controls how often they change, so they are written at most once a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware.interfaces import MAX_INTERFACES
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places import forms
from launcher.protocol import messages

WRITE_SECONDS: Final = 60.0
MAX_WORD: Final = 128
MAX_PROBLEM: Final = 256
MAX_ADDRESSES: Final = 8


def with_guest(vm: Object, status: Object, observed: messages.Status, now: datetime) -> tuple[Object, float | None]:
    """Return the status with the guest agent's data and condition, and the seconds until more may be written, or None.

    Changes come at most once per ``WRITE_SECONDS``; none while the guest stops, or has no answer yet just after its migration.
    """
    stored = dig_vm(vm, "status", "guest")
    if observed.stopping or (stored is not None and _has_just_arrived(observed, now)):
        return status, None if observed.stopping else WRITE_SECONDS
    guest = _guest(observed, stored or {}, frozenset(each["name"] for each in status.get("interfaces") or ()))
    condition = _condition(vm, observed.agent)
    found = objects.with_status_condition(status, condition, now=times.to_rfc3339(now))
    if stored is None:
        return ({**found, "guest": {**guest, "time": times.to_rfc3339(now)}} if guest else found), None
    before = objects.condition(status.get("conditions"), conditions.AGENT_CONNECTED) or {}
    if guest == {key: value for key, value in stored.items() if key != "time"} and before.get("reason") == condition["reason"]:
        return status, None
    if (left := WRITE_SECONDS - _seconds_since(stored, now)) > 0:
        return status, left
    return {**found, "guest": {**guest, "time": times.to_rfc3339(now)}}, None


def _guest(observed: messages.Status, stored: Mapping[str, Any], names: frozenset[str]) -> Object:
    """Return ``status.guest`` without its time; while the agent reports nothing, the stored data."""
    agent = observed.agent
    if not (agent.version or agent.os_id or agent.hostname):
        said = {key: value for key, value in stored.items() if key != "time"}
        return {**said, "agent": {**(said.get("agent") or {}), "connected": agent.connected}} if said or agent.connected else {}
    system = {"id": agent.os_id, "name": agent.os_name, "version": agent.os_version, "kernelRelease": agent.kernel_release}
    guest: dict[str, Any] = {
        "agent": {"connected": agent.connected, **_words({"version": agent.version})},
        "os": _words(system),
        **_words({"hostname": agent.hostname, "timezone": agent.timezone}),
        "interfaces": [_interface(each) for each in observed.interfaces if each.name in names][:MAX_INTERFACES],
    }
    return {key: value for key, value in guest.items() if value}


def _interface(interface: messages.InterfaceStatus) -> Object:
    addresses = [each for each in interface.ip_addresses if forms.ip(each) is not None][:MAX_ADDRESSES]
    return {"name": interface.name, **_words({"device": interface.guest_device}), **({"ipAddresses": addresses} if addresses else {})}


def _words(given: dict[str, str]) -> Object:
    cut = {key: one_line(value, MAX_WORD).encode()[: forms.MAX_WORDS].decode(errors="ignore") for key, value in given.items()}
    return {key: value for key, value in cut.items() if value}


def _condition(vm: Object, agent: messages.AgentStatus) -> Object:
    if not agent.connected:
        found = ("False", "NotConnected", "no QEMU guest agent is connected")
    elif agent.problem:
        found = ("False", "NotAnswering", f"the QEMU guest agent does not answer: {one_line(agent.problem, MAX_PROBLEM)}")
    else:
        found = ("True", "Connected", "")
    return objects.new_condition(vm, conditions.AGENT_CONNECTED, *found)


def _has_just_arrived(observed: messages.Status, now: datetime) -> bool:
    unanswered = observed.agent == messages.AgentStatus()
    return unanswered and any(
        each.direction == "incoming" and now.timestamp() - each.end_time < WRITE_SECONDS for each in observed.migrations
    )  # fmt: skip


def _seconds_since(guest: Mapping[str, Any], now: datetime) -> float:
    reported = times.parsed(guest.get("time"))
    seconds = (now - reported).total_seconds() if reported is not None else WRITE_SECONDS
    return seconds if seconds >= 0 else WRITE_SECONDS  # the clock was set back

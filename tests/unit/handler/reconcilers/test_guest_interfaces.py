from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.spec import live_changes
from handler.reconcilers.guests import device_steps, guest_steps
from handler.reconcilers.guests.device_steps import Failure
from handler.reconcilers.guests.guest_steps import AttachCard, DetachCard
from launcher.protocol import messages

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATH = "spec.domain.devices.interfaces[lan]"
DEFAULT, LAN, DMZ = {"name": "default"}, {"name": "lan", "network": "lan"}, {"name": "dmz", "network": "dmz"}


FULL = {**LAN, "type": "bridge", "model": "virtio"}
COMES, LEAVES = AttachCard(FULL), DetachCard(FULL)


def a_vm(desired: list[dict[str, Any]], runs: list[dict[str, Any]] | None = None, **status: Any) -> dict[str, Any]:
    vm: dict[str, Any] = {
        "metadata": {"name": "testvm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {"interfaces": desired}}},
        "status": {"phase": "Running", "podUID": "p", **status},
    }
    if runs is not None:
        vm["status"]["running"] = {"domain": {"devices": {"interfaces": runs}}}
    return vm


def a_launcher(*cards: str, changes: tuple[str, ...] = ("interface",)) -> messages.Status:
    devices = tuple(messages.DeviceStatus("interface", each, "tap0") for each in cards)
    return messages.Status(1, messages.DomainStatus("d", "u", "qemu", "running", "booted", devices=devices, changes=changes))


def step(vm: dict[str, Any], launcher: messages.Status, failures: dict[str, Failure] | None = None, now: float = 0.0) -> str:
    found = device_steps.next_due(guest_steps.missing(vm, launcher), failures or {}, now)
    return "" if found is None else f"{type(found).__name__} {found.name}"


@pytest.mark.parametrize(
    ("vm", "there", "expected"),
    [
        (a_vm([DEFAULT]), ("default",), ""),
        (a_vm([DEFAULT, LAN], [DEFAULT]), ("default",), "AttachCard lan"),
        (a_vm([DEFAULT, LAN], [DEFAULT]), ("default", "lan"), "AttachCard lan"),  # until it is in the running form
        (a_vm([DEFAULT, LAN]), ("default",), "AttachCard lan"),
        (a_vm([DEFAULT], [DEFAULT, LAN]), ("default", "lan"), "DetachCard lan"),
        (a_vm([DEFAULT], [DEFAULT, LAN]), ("default",), "DetachCard lan"),
        (a_vm([DEFAULT, DMZ], [DEFAULT, LAN]), ("default", "lan"), "DetachCard lan"),
        (a_vm([{"name": "other"}], [DEFAULT]), ("default",), "DetachCard default"),
    ],
)
def test_step_follows_from_both_forms_and_the_guest(vm: dict[str, Any], there: tuple[str, ...], expected: str) -> None:
    assert step(vm, a_launcher(*there)) == expected
    assert step(vm, a_launcher(*there, changes=())) == ""
    assert step(vm, messages.Status(1)) == ""


def test_failed_step_waits_and_others_go_on() -> None:
    vm, launcher = a_vm([DEFAULT, DMZ], [DEFAULT, LAN]), a_launcher("default", "lan")
    failures = {PATH: device_steps.failure_after(LEAVES, "it keeps it", None, 10.0, waits=False)}
    assert step(vm, launcher, failures, 10.5) == "AttachCard dmz"
    for now in (11.0, 12.0):
        assert step(vm, launcher, failures, now) == "DetachCard lan"
    assert device_steps.pause(guest_steps.missing(vm, launcher), failures, 12.0) == 0.0
    assert device_steps.pause(guest_steps.missing(vm, launcher), failures, 10.25) == 0.75
    assert device_steps.pause(guest_steps.missing(vm, launcher), failures, 5.0) == 6.0
    edited = a_vm([DEFAULT, DMZ], [DEFAULT, {**LAN, "mac": "52:54:00:00:00:01"}])
    assert step(edited, launcher, failures, 10.5) == "DetachCard lan"
    again = device_steps.failure_after(LEAVES, "it keeps it", failures[PATH], 20.0, waits=False)
    assert (again.count, again.again) == (2, 22.0)
    assert device_steps.failure_after(LEAVES, "it keeps it", again, 20.0, waits=False).count == 3
    assert device_steps.failure_after(COMES, "no network", again, 20.0, waits=True).count == 1
    assert device_steps.current(guest_steps.missing(a_vm([DEFAULT]), launcher), failures) == {}
    assert device_steps.pause(guest_steps.missing(a_vm([DEFAULT]), launcher), failures, 10.25) is None


@pytest.mark.parametrize(("waits", "state"), [(True, "Pending"), (False, "Failed")])
def test_failure_is_told_with_the_time_of_its_state(waits: bool, state: str) -> None:
    vm, launcher = a_vm([DEFAULT, LAN], [DEFAULT]), a_launcher("default")
    failures = {PATH: device_steps.failure_after(COMES, "no network", None, 10.0, waits=waits)}
    steps = guest_steps.missing(vm, launcher)
    status = device_steps.with_entries(vm, {"changes": [{"path": "x"}]}, steps, failures, NOW)
    told = {"path": PATH, "state": state, "time": "2026-01-01T00:00:00Z", "message": "no network"}
    assert status["changes"] == [{"path": "x"}, told]
    old = {**told, "time": "2025-01-01T00:00:00Z"}
    again = device_steps.with_entries(a_vm([DEFAULT, LAN], [DEFAULT], changes=[old]), {}, steps, failures, NOW)
    assert again["changes"] == [old]
    for other in ({**old, "state": "Applied"}, {**old, "state": "X"}, {**old, "time": ""}):
        vm = a_vm([DEFAULT, LAN], [DEFAULT], changes=[other])
        assert device_steps.with_entries(vm, {}, steps, failures, NOW)["changes"] == [told]
    assert device_steps.with_entries(vm, {}, steps, {}, NOW) == {}


def test_step_that_may_not_begin_yet_is_told_as_pending() -> None:
    vm = a_vm([DEFAULT, LAN], [DEFAULT])
    early = device_steps.delayed(COMES, "too often", None, 15.0)
    assert (early.count, early.again) == (0, 15.0)
    (entry,) = device_steps.with_entries(vm, {}, guest_steps.missing(vm, a_launcher("default")), {PATH: early}, NOW)["changes"]
    assert (entry["state"], entry["message"]) == ("Pending", "too often")
    failed = device_steps.failure_after(COMES, "no network", None, 10.0)
    assert device_steps.delayed(COMES, "too often", failed, 15.0) == replace(failed, again=15.0)
    assert device_steps.delayed(LEAVES, "too often", failed, 15.0).message == "too often"


def test_end_of_a_step_replaces_its_failure() -> None:
    applied = {"path": PATH, "state": "Applied", "time": "2026-01-01T00:00:00Z"}
    others = [{"path": each} for each in ("a", "x")]
    done = device_steps.done(a_vm([DEFAULT], [DEFAULT, LAN], changes=[*others, {"path": PATH, "state": "Failed"}]), PATH, NOW)
    assert (done["changes"], done["phase"]) == ([*others, applied], "Running")
    many = [{"path": str(each)} for each in range(live_changes.MAX_CHANGES)]
    assert device_steps.done(a_vm([DEFAULT], changes=many), PATH, NOW)["changes"] == [*many[:-1], applied]

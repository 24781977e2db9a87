from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta import objects
from handler.reconcilers.guests import disk_faults, guest_status
from launcher.protocol.messages import DiskFault
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm


def with_disks(*names: str) -> dict[str, Any]:
    vm = a_vm("Running")
    found = [{"name": each, "type": "PersistentVolumeClaim", "source": {"name": each}} for each in names]
    vm["spec"]["domain"]["devices"]["disks"] = found
    return vm


@pytest.mark.parametrize(
    ("faults", "reason", "message"),
    [
        (
            [DiskFault("data", full=True)],
            "DiskFull",
            (
                "disk 'data': its storage is full: expand the PersistentVolumeClaim or free space on its storage; "
                "the guest keeps running and gets I/O errors"
            ),
        ),
        (
            [DiskFault("data", ignored=True)],
            "DiskIOError",
            "disk 'data': reads or writes fail; failed writes are lost without an error in the guest (driver.errorPolicy: ignore)",
        ),
    ],
)
def test_the_condition_names_the_disk_and_what_the_guest_knows(faults: list[DiskFault], reason: str, message: str) -> None:
    found = disk_faults.condition(with_disks("other", "data"), [*faults, DiskFault("forged", full=True)])
    assert found == {"type": "DisksReady", "status": "False", "reason": reason, "message": message, "observedGeneration": 3}


def test_full_disk_is_the_reason_and_all_failing_disks_are_named() -> None:
    found = disk_faults.condition(with_disks("a", "b"), [DiskFault("b", full=True), DiskFault("a")]) or {}
    assert found["reason"] == "DiskFull"
    assert found["message"].index("disk 'a'") < found["message"].index("disk 'b'")


def test_unknown_disks_are_ignored_and_the_message_is_bounded() -> None:
    assert disk_faults.condition(with_disks("a"), [DiskFault("forged", full=True)]) is None
    many = [f"disk-{number}" for number in range(100)]
    found = disk_faults.condition(with_disks(*many), [DiskFault(each) for each in many]) or {}
    assert len(found["message"]) <= disk_faults.MAX_MESSAGE


def test_disk_fault_stays_until_recovery_and_is_news_once() -> None:
    vm = with_disks("data")
    failing = replace(a_running(), disk_faults=(DiskFault("data", full=True),))
    first = guest_status.running(vm, failing, None, NOW)
    told = disk_faults.news(vm, first)
    assert told is not None
    assert told[0] == "DiskFull"
    assert objects.is_true(first["conditions"], "Ready")
    again = guest_status.running({**vm, "status": first}, failing, None, NOW + timedelta(minutes=1))
    assert again == first
    assert disk_faults.news({**vm, "status": first}, again) is None

    well = guest_status.running({**vm, "status": first}, a_running(), None, NOW)
    assert objects.is_true(well["conditions"], "DisksReady")
    assert disk_faults.news({**vm, "status": first}, well) is None


def test_plugin_fault_is_news_when_its_message_or_reason_changes() -> None:
    vm = with_disks("data")
    first, other, worse = (
        guest_status.with_disks_fault(vm, {}, reason, message, NOW)
        for reason, message in (("PluginFailed", "san: no"), ("PluginTimedOut", "san: no"), ("PluginFailed", "san: never"))
    )
    assert disk_faults.news(vm, first, "PluginFailed") == ("PluginFailed", "san: no")
    told = {**vm, "status": first}
    assert disk_faults.news(told, {**first, "phase": "Paused"}, "PluginFailed") is None
    assert disk_faults.news(told, other, "PluginTimedOut") == ("PluginTimedOut", "san: no")
    assert disk_faults.news(told, worse, "PluginFailed") == ("PluginFailed", "san: never")
    assert disk_faults.news(vm, first) is None

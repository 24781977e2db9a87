from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import evictions, summary
from controller.manager import machine_metrics
from controller.manager.machine_metrics import ABOUT, group_of
from tests.unit.controller.reconcilers.builders import a_vm

CREATED = "2026-01-01T00:00:00Z"


def a_machine(phase: str = "Running", **status: Any) -> dict[str, Any]:
    vm = a_vm(phase=phase)
    vm["metadata"]["creationTimestamp"] = CREATED
    vm["spec"]["runStrategy"] = "Manual"
    vm["spec"]["domain"] = {"machine": {"type": "q35"}, "cpu": {"cores": 2}, "memory": {"guest": "1Gi"}}
    vm["status"] |= {"nodeName": "node1", "podName": "pod", "phaseTransitionTimestamps": [{"phase": phase, "time": CREATED}], **status}
    return vm


def a_migration(phase: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": "m"}, "spec": {"selector": {"name": "testvm"}}, "status": {"phase": phase}}


async def series(vms: list[Any], migrations: list[Any], strategy: evictions.Strategy = evictions.LIVE_MIGRATE) -> list[str]:
    text = (await machine_metrics.page(vms, migrations, strategy)).decode()
    return [each for each in text.splitlines() if not each.startswith("#")]


async def test_a_running_machine_has_its_state_size_and_place() -> None:
    conditions = [{"type": "Migratable", "status": "True", "reason": "", "message": ""}]
    machine = 'namespace="default",name="testvm"'
    guest = {"os": {"name": 'Debian "13"', "version": "13", "kernelRelease": "x" * 100}}
    facts = f'guest_os_name="Debian \\"13\\"",guest_os_version_id="13",guest_os_kernel_release="{"x" * 64}"'
    assert (await series([a_machine(conditions=conditions, guest=guest)], []))[:-3] == [
        f'kubevirt_vm_info{{{machine},machine_type="q35",status="running",status_group="running"}} 1',
        f"kubevirt_vm_create_date_timestamp_seconds{{{machine}}} 1767225600",
        f'kubevirt_vm_resource_requests{{{machine},resource="cpu",unit="sockets",source="domain"}} 1',
        f'kubevirt_vm_resource_requests{{{machine},resource="cpu",unit="cores",source="domain"}} 2',
        f'kubevirt_vm_resource_requests{{{machine},resource="cpu",unit="threads",source="domain"}} 1',
        f'kubevirt_vm_resource_requests{{{machine},resource="memory",unit="bytes",source="guest"}} 1073741824',
        f"kubevirt_vm_running_status_last_transition_timestamp_seconds{{{machine}}} 1767225600",
        f'kubevirt_vmi_info{{node="node1",{machine},phase="running",evictable="true",outdated="false",vmi_pod="pod",{facts}}} 1',
        f'kubevirt_vmi_non_evictable{{node="node1",{machine}}} 0',
    ]


@pytest.mark.parametrize(
    ("own", "cluster", "value"),
    [
        ({}, evictions.LIVE_MIGRATE, 1),
        ({}, evictions.LIVE_MIGRATE_IF_POSSIBLE, 0),
        ({"evictionStrategy": "LiveMigrate"}, evictions.LIVE_MIGRATE_IF_POSSIBLE, 1),
        ({"evictionStrategy": "Shutdown"}, evictions.LIVE_MIGRATE, 0),
    ],
)
async def test_a_guest_that_may_be_shut_down_is_evictable(own: dict[str, str], cluster: evictions.Strategy, value: int) -> None:
    vm = a_machine()
    vm["spec"] |= own
    found = await series([vm], [], cluster)
    assert f'kubevirt_vmi_non_evictable{{node="node1",namespace="default",name="testvm"}} {value}' in found
    assert f'evictable="{"false" if value else "true"}"' in next(each for each in found if each.startswith("kubevirt_vmi_info"))


async def test_a_pause_is_a_change_of_state() -> None:
    paused = {"type": "Paused", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    found = await series([a_machine(conditions=[paused])], [])
    assert 'kubevirt_vm_non_running_status_last_transition_timestamp_seconds{namespace="default",name="testvm"} 1767225660' in found


async def test_a_machine_that_is_off_has_no_place() -> None:
    found = await series([a_machine("Stopped")], [])
    assert 'status_group="non_running"' in found[0]
    assert not any(each.startswith("kubevirt_vmi_info") for each in found)


async def test_migrations_are_counted_by_kubevirts_phases() -> None:
    phases = ("Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed", "Cancelled")
    assert await series([], [a_migration(each) for each in phases]) == [
        'kubevirt_vmi_migration_succeeded{namespace="ns",vmi="testvm",vmim="m"} 1',
        'kubevirt_vmi_migration_failed{namespace="ns",vmi="testvm",vmim="m"} 1',
        "kubevirt_vmi_migrations_in_pending_phase 1",
        "kubevirt_vmi_migrations_in_scheduling_phase 3",
        "kubevirt_vmi_migrations_in_running_phase 1",
    ]


async def test_a_migration_has_its_times_and_figures() -> None:
    names = 'namespace="ns",vmi="testvm",vmim="m"'
    running, ended = a_migration("Running"), a_migration("Cancelled")
    running["status"] |= {"startTime": CREATED, "progress": {"totalBytes": 9, "remainingBytes": 4, "bytesPerSecond": 0}}
    ended["status"] |= {"startTime": CREATED, "endTime": CREATED, "progress": {"totalBytes": 9}}
    assert (await series([], [running]))[:-3] == [
        'kubevirt_vmi_migration_data_bytes_total{namespace="ns",name="testvm"} 9',
        'kubevirt_vmi_migration_data_remaining_bytes{namespace="ns",name="testvm"} 4',
        'kubevirt_vmi_migration_memory_transfer_rate_bytes{namespace="ns",name="testvm"} 0',
        f"kubevirt_vmi_migration_start_time_seconds{{{names}}} 1767225600",
    ]
    assert (await series([], [ended]))[:-3] == [
        f"kubevirt_vmi_migration_start_time_seconds{{{names}}} 1767225600",
        f"kubevirt_vmi_migration_end_time_seconds{{{names}}} 1767225600",
    ]


@pytest.mark.parametrize(
    "change",
    [{"spec": {"domain": {"memory": {"guest": "much"}}}}, {"spec": {"domain": {"cpu": "four"}}}, {"metadata": {}}],
)
async def test_a_malformed_machine_hides_no_other(change: dict[str, Any]) -> None:
    found = await series([{**a_machine(), **change}, a_machine()], [{"metadata": {}, "status": "lost"}, a_migration("Running")])
    assert sum(each.startswith("kubevirt_vm_info") for each in found) == 1
    assert found[-1] == "kubevirt_vmi_migrations_in_running_phase 1"


@pytest.mark.parametrize(
    ("phase", "group"),
    [
        ("Pending", "starting"),
        ("Running", "running"),
        ("Stopped", "non_running"),
        ("Failed", "non_running"),
        ("Suspended", "non_running"),
        ("Unknown", "error"),
    ],
)
def test_states_have_kubevirts_groups(phase: str, group: str) -> None:
    assert group_of(summary.word(a_machine(phase))) == group


def test_a_machine_that_downloads_its_disk_is_starting() -> None:
    importing = {"type": "Ready", "status": "False", "reason": "Importing", "message": ""}
    assert group_of(summary.word(a_machine("Pending", conditions=[importing]))) == "starting"


async def test_every_metric_is_a_gauge_with_a_help_text() -> None:
    text = (await machine_metrics.page([], [], evictions.LIVE_MIGRATE)).decode()
    assert [each for each in text.splitlines() if each.startswith("# TYPE")] == [f"# TYPE {each} gauge" for each in ABOUT]

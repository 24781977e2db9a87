"""Metrics about machines and Migrations, from virt-controller's informers.

Names and labels are KubeVirt's (docs/observability/metrics.md of kubevirt/kubevirt), so its dashboards and alerts work.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from apiserver.apis.meta import quantity, times
from apiserver.apis.meta.objects import Object, condition, name_of, namespace_of
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import conditions, evictions, phases, progress, summary
from apiserver.metrics.exposition import heading, label_text, number

Row = tuple[str, Mapping[str, str], float]
BATCH: Final = 1000
UNFINISHED: Final = ("pending", "scheduling", "running")
GROUPS: Final = ("starting", "running", "migrating", "non_running", "error")
_STARTING, _RUNNING, _MIGRATING, _NON_RUNNING, _ERROR = GROUPS
_GROUP_OF: Final[Mapping[str, str]] = {
    phases.PENDING: _STARTING,
    summary.STARTING: _STARTING,
    summary.WAITING_FOR_IMAGE: _STARTING,
    summary.WAITING_FOR_SERVER: _STARTING,
    conditions.IMPORTING: _STARTING,
    phases.RUNNING: _RUNNING,
    summary.REBOOT_LOOP: _RUNNING,
    summary.MIGRATING: _MIGRATING,
    phases.STOPPED: _NON_RUNNING,
    phases.SUCCEEDED: _NON_RUNNING,
    phases.FAILED: _NON_RUNNING,
    phases.SUSPENDED: _NON_RUNNING,
    summary.SUSPENDING: _NON_RUNNING,
    summary.PAUSED: _NON_RUNNING,
    summary.PANICKED: _NON_RUNNING,
    summary.STOPPING: _NON_RUNNING,
    summary.TERMINATING: _NON_RUNNING,
}
"""By the word of ``kubectl get vms``; all others are errors."""
_FIGURES: Final[Mapping[str, str]] = {
    "kubevirt_vmi_migration_data_bytes_total": "totalBytes",
    "kubevirt_vmi_migration_data_processed_bytes": "processedBytes",
    "kubevirt_vmi_migration_data_remaining_bytes": "remainingBytes",
    "kubevirt_vmi_migration_dirty_memory_rate_bytes": "dirtyBytesPerSecond",
    "kubevirt_vmi_migration_memory_transfer_rate_bytes": "bytesPerSecond",
}
"""A running Migration's metrics, with the field of its progress."""
_TIMES: Final[Mapping[str, str]] = {
    "kubevirt_vmi_migration_start_time_seconds": "startTime",
    "kubevirt_vmi_migration_end_time_seconds": "endTime",
}
"""A Migration's metrics, with the field of its status."""
MAX_FACT: Final = 64
"""Characters of a guest's fact in a label."""
ABOUT: Final[Mapping[str, str]] = {
    "kubevirt_vm_info": "A machine, with its state.",
    "kubevirt_vm_create_date_timestamp_seconds": "When a machine was created.",
    "kubevirt_vm_resource_requests": "CPUs and memory of a machine's guest.",
    **{
        f"kubevirt_vm_{each}_status_last_transition_timestamp_seconds": f"When machines in state {each} entered their phase or pause."
        for each in GROUPS
    },
    "kubevirt_vmi_info": "A machine with a guest, its place, and what its agent says.",
    "kubevirt_vmi_non_evictable": "1 if an eviction must migrate a machine's guest, and the guest cannot migrate.",
    "kubevirt_vmi_migration_succeeded": "A Migration that succeeded.",
    "kubevirt_vmi_migration_failed": "A Migration that failed.",
    **{name: f"{field} in status.progress of the machine's running Migration." for name, field in _FIGURES.items()},
    **{name: f"{field} in a Migration's status." for name, field in _TIMES.items()},
    **{f"kubevirt_vmi_migrations_in_{each}_phase": f"Migrations that are {each}." for each in UNFINISHED},
}


async def page(vms: Sequence[Object], migrations: Sequence[Object], strategy: evictions.Strategy) -> bytes:
    """Return the metrics of machines and Migrations as text, pausing for other tasks; ``strategy`` is the cluster's for evictions."""
    found: dict[str, list[str]] = {name: [] for name in ABOUT}
    for index, (name, labels, value) in enumerate(_rows(vms, migrations, strategy)):
        if index % BATCH == 0:
            await asyncio.sleep(0)
        found[name].append(f"{name}{label_text(tuple(labels), tuple(labels.values()))} {number(value)}")
    return "".join(f"{line}\n" for name, lines in found.items() for line in (*heading(name, "gauge", ABOUT[name]), *lines)).encode()


def group_of(word: str) -> str:
    """Return KubeVirt's group of a machine's word, one of ``GROUPS``, such as ``running``; ``error`` for other words."""
    return _GROUP_OF.get(word, _ERROR)


def _rows(vms: Sequence[Object], migrations: Sequence[Object], strategy: evictions.Strategy) -> Iterator[Row]:
    counts: Counter[str] = Counter()
    for vm in vms:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            yield from tuple(_of_machine(vm, strategy))  # all of its rows, or none
    for migration in migrations:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            yield from tuple(_of_migration(migration))
            counts[_phase_of(migration)] += 1
    yield from ((f"kubevirt_vmi_migrations_in_{each}_phase", {}, counts[each]) for each in UNFINISHED)


def _of_machine(vm: Object, strategy: evictions.Strategy) -> Iterator[Row]:
    names, word = _names(vm), summary.word(vm)
    group = group_of(word)
    machine = str(dig_vm(vm, "spec", "domain", "machine", "type") or "")
    yield "kubevirt_vm_info", {**names, "machine_type": machine, "status": word.lower(), "status_group": group}, 1
    yield "kubevirt_vm_create_date_timestamp_seconds", names, times.parse(vm["metadata"]["creationTimestamp"]).timestamp()
    cpu = dig_vm(vm, "spec", "domain", "cpu") or {}
    for unit in ("sockets", "cores", "threads"):
        yield "kubevirt_vm_resource_requests", {**names, "resource": "cpu", "unit": unit, "source": "domain"}, int(str(cpu.get(unit) or 1))
    if guest := dig_vm(vm, "spec", "domain", "memory", "guest"):
        amount = float(quantity.parse(str(guest)).bytes)
        yield "kubevirt_vm_resource_requests", {**names, "resource": "memory", "unit": "bytes", "source": "guest"}, amount
    if moments := list(_changes(vm, word)):
        entered = max(times.parse(each).timestamp() for each in moments)
        yield f"kubevirt_vm_{group}_status_last_transition_timestamp_seconds", names, entered
    if phases.phase_of(vm) in phases.WITH_GUEST:
        yield from _of_guest(vm, names, evictions.strategy_of(vm) or strategy)


def _changes(vm: Object, word: str) -> Iterator[str]:
    """Yield the times at which the machine entered its phases, and at which its pause began."""
    yield from (each["time"] for each in dig_vm(vm, "status", "phaseTransitionTimestamps") or ())
    if word == summary.PAUSED and (since := _condition(vm, conditions.PAUSED).get("lastTransitionTime")):
        yield since


def _of_guest(vm: Object, names: Mapping[str, str], strategy: evictions.Strategy) -> Iterator[Row]:
    node = str(dig_vm(vm, "status", "nodeName") or "")
    stays = strategy == evictions.LIVE_MIGRATE and not _is_true(vm, conditions.MIGRATABLE)
    system = dig_vm(vm, "status", "guest", "os") or {}
    place = {
        "node": node,
        **names,
        "phase": phases.phase_of(vm).lower(),
        "evictable": str(not stays).lower(),
        "outdated": str(_is_true(vm, conditions.LAUNCHER_OUTDATED)).lower(),
        "vmi_pod": str(dig_vm(vm, "status", "podName") or ""),
        "guest_os_name": str(system.get("name") or "")[:MAX_FACT],
        "guest_os_version_id": str(system.get("version") or "")[:MAX_FACT],
        "guest_os_kernel_release": str(system.get("kernelRelease") or "")[:MAX_FACT],
    }
    yield "kubevirt_vmi_info", place, 1
    yield "kubevirt_vmi_non_evictable", {"node": node, **names}, float(stays)


def _of_migration(migration: Object) -> Iterator[Row]:
    phase, machine = phases.phase_of(migration), str(dig_migration(migration, "spec", "selector", "name") or "")
    labels = {"namespace": namespace_of(migration), "vmi": machine, "vmim": name_of(migration)}
    if (ended := {phases.SUCCEEDED: "succeeded", phases.FAILED: "failed"}.get(phase)) is not None:
        yield f"kubevirt_vmi_migration_{ended}", labels, 1
    status = dig_migration(migration, "status") or {}
    for name, field in _TIMES.items():
        if (moment := times.parsed(status.get(field))) is not None:
            yield name, labels, moment.timestamp()
    if phase == phases.RUNNING:
        figures = progress.of(migration)
        of_machine = {"namespace": namespace_of(migration), "name": machine}
        yield from ((name, of_machine, float(figures[field])) for name, field in _FIGURES.items() if field in figures)


def _phase_of(migration: Object) -> str:
    phase = phases.phase_of(migration) or phases.PENDING
    if phase in phases.MIGRATION_FINAL:
        return ""
    return {phases.PENDING: "pending", phases.RUNNING: "running"}.get(phase, "scheduling")


def _names(obj: Object) -> dict[str, str]:
    return {"namespace": namespace_of(obj), "name": name_of(obj)}


def _is_true(vm: Object, type_: str) -> bool:
    return _condition(vm, type_).get("status") == "True"


def _condition(vm: Object, type_: str) -> Mapping[str, str]:
    return condition(dig_vm(vm, "status", "conditions"), type_) or {}

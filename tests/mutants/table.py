"""The modules with mutants, and their tests without processes and sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final


@dataclass(frozen=True)
class Module:
    path: str
    tests: tuple[str, ...]


def _module(path: str, *tests: str) -> Module:
    return Module(path, tuple(f"tests/unit/{each}" for each in tests))


def _of_machine_plan(*modules: str) -> tuple[Module, ...]:
    tests = (
        "controller/reconcilers/virtual_machines/test_split_plan_corners.py",
        "controller/reconcilers/virtual_machines/test_start_rules.py",
        "controller/reconcilers/virtual_machines/test_outdated.py",
        "controller/reconcilers/virtual_machines/test_restart_required.py",
        "controller/reconcilers/pods/test_networks.py",
        "controller/reconcilers/pods/test_sandboxes.py",
        "controller/reconcilers/virtual_machines/test_virtual_machine_plan_corners.py",
        "controller/reconcilers/virtual_machines/test_virtual_machine_plan.py",
        "controller/reconcilers/pods/test_mounted_sources.py",
        "controller/reconcilers/virtual_machines/test_suspension.py",
        "controller/reconcilers/virtual_machines/test_node_loss.py",
        "controller/reconcilers/virtual_machines/test_attachment_pods.py",
    )
    return tuple(_module(f"controller/reconcilers/virtual_machines/{each}.py", *tests) for each in modules)


MODULES: Final = (
    _module("apiserver/apis/virt/lifecycle/phases.py", "apiserver/apis/virt/test_phases.py"),
    _module("apiserver/apis/virt/lifecycle/power.py", "apiserver/apis/virt/test_power.py"),
    _module("apiserver/apis/virt/lifecycle/operations.py", "apiserver/apis/virt/test_operations.py"),
    _module("apiserver/apis/virt/lifecycle/failed_starts.py", "apiserver/apis/virt/test_failed_starts.py"),
    _module("apiserver/apis/virt/guards.py", "apiserver/apis/virt/test_guards.py"),
    _module("apiserver/kubectl/fencing_plan.py", "apiserver/kubectl/test_fencing_plan.py"),
    _module("apiserver/apis/virt/lifecycle/summary.py", "apiserver/apis/virt/test_summary.py"),
    _module(
        "apiserver/apis/virt/hardware/host_disks.py",
        "apiserver/apis/virt/v1alpha1/domain/test_host_disks.py",
        "apiserver/apis/virt/v1alpha1/test_allowed.py",
    ),
    _module(
        "apiserver/apis/virt/spec/disk_uses.py",
        "apiserver/apis/virt/test_disk_uses.py",
        "apiserver/registry/virt/test_disk_claims.py",
    ),
    _module(
        "apiserver/apis/virt/spec/running.py",
        "apiserver/apis/virt/test_running.py",
        "apiserver/apis/virt/test_hot_plug.py",
        "apiserver/apis/virt/test_hot_plug_interfaces.py",
        "apiserver/apis/virt/test_live_changes.py",
    ),
    _module(
        "apiserver/apis/virt/spec/live_changes.py",
        "apiserver/apis/virt/test_live_changes.py",
        "apiserver/apis/virt/test_hot_plug.py",
        "apiserver/apis/virt/test_hot_plug_interfaces.py",
    ),
    _module(
        "apiserver/apis/virt/spec/hot_plug.py",
        "apiserver/apis/virt/test_hot_plug.py",
        "controller/reconcilers/virtual_machines/test_attachment_pods.py",
    ),
    _module(
        "apiserver/apis/virt/spec/hot_plug_interfaces.py",
        "apiserver/apis/virt/test_hot_plug_interfaces.py",
        "handler/reconcilers/test_guest_interfaces.py",
    ),
    _module(
        "handler/reconcilers/guests/guest_steps.py",
        "handler/reconcilers/test_guest_disks.py",
        "handler/reconcilers/test_guest_interfaces.py",
    ),
    _module(
        "handler/reconcilers/guests/device_steps.py",
        "handler/reconcilers/test_guest_disks.py",
        "handler/reconcilers/test_guest_interfaces.py",
    ),
    _module("apiserver/apis/virt/lifecycle/migration_policies.py", "apiserver/apis/virt/test_migration_policies.py"),
    _module("apiserver/apis/virt/rights/pod_rights.py", "apiserver/apis/virt/test_pod_rights.py"),
    _module(
        "controller/evictions/eviction_plan.py",
        "controller/evictions/test_eviction_plan_corners.py",
        "controller/evictions/test_eviction_plan.py",
    ),
    _module("controller/evictions/outcomes.py", "controller/evictions/test_outcomes.py", "controller/evictions/test_eviction_plan.py"),
    _module(
        "controller/evictions/places.py",
        "controller/evictions/test_places.py",
        "controller/evictions/test_eviction_plan_corners.py",
        "controller/evictions/test_eviction_plan.py",
        "controller/evictions/test_waiting.py",
    ),
    _module("controller/reconcilers/non_operational/marking_plan.py", "controller/reconcilers/non_operational/test_marking_plan.py"),
    _module("importer/addresses.py", "importer/test_addresses.py"),
    _module("controller/reconcilers/virtual_machines/endings.py", "controller/reconcilers/virtual_machines/test_endings.py"),
    _module("controller/reconcilers/precedence.py", "controller/reconcilers/test_precedence.py"),
    _module("controller/reconcilers/nodes/baseline_cpu.py", "controller/reconcilers/nodes/test_baseline_cpu.py"),
    _module("controller/reconcilers/pods/readiness.py", "controller/reconcilers/pods/test_readiness.py"),
    _module("controller/reconcilers/virtual_machines/disruptions.py", "controller/reconcilers/virtual_machines/test_disruptions.py"),
    _module(
        "controller/reconcilers/certificates/node_certificate_plan.py", "controller/reconcilers/certificates/test_node_certificate_plan.py"
    ),
    _module("controller/reconcilers/certificates/certificate_plan.py", "controller/reconcilers/certificates/test_certificate_plan.py"),
    _module(
        "controller/reconcilers/migrations/migration_plan.py",
        "controller/reconcilers/migrations/test_migration_plan_corners.py",
        "controller/reconcilers/migrations/test_migration_plan.py",
        "controller/reconcilers/migrations/test_migration_retries.py",
        "controller/reconcilers/migrations/test_migration_bounds.py",
    ),
    _module("controller/reconcilers/migrations/ended_drains.py", "controller/reconcilers/migrations/test_ended_drains.py"),
    _module("controller/reconcilers/migrations/migration_bounds.py", "controller/reconcilers/migrations/test_migration_bounds.py"),
    _module(
        "controller/reconcilers/migrations/migration_queue.py",
        "controller/reconcilers/migrations/test_migration_queue.py",
        "controller/reconcilers/migrations/test_migration_bounds.py",
    ),
    _module(
        "controller/reconcilers/migrations/migration_retries.py",
        "controller/reconcilers/migrations/test_migration_retries_corners.py",
        "controller/reconcilers/migrations/test_migration_retries.py",
    ),
    _module("controller/reconcilers/migrations/migratable.py", "controller/reconcilers/migrations/test_migratable.py"),
    _module(
        "controller/reconcilers/upgrades/workload_update_plan.py",
        "controller/reconcilers/upgrades/test_workload_update_plan.py",
        "controller/reconcilers/upgrades/test_workload_update_memory.py",
    ),
    _module("controller/reconcilers/pods/mounted_sources.py", "controller/reconcilers/pods/test_mounted_sources.py"),
    _module("controller/runtime/leaderelection.py", "controller/runtime/test_leaderelection.py"),
    _module("controller/reconcilers/pods/sandboxes.py", "controller/reconcilers/pods/test_sandboxes.py"),
    *_of_machine_plan(
        "virtual_machine_plan",
        "start_rules",
        "attempt_start",
        "attempt_end",
        "assignment",
        "image_removal",
        "pod_obstacles",
        "rest",
        "statuses",
    ),
    *(
        _module(
            f"controller/reconcilers/replica_sets/{each}.py",
            "controller/reconcilers/replica_sets/test_replica_set_corners.py",
            "controller/reconcilers/replica_sets/test_replica_set_plan.py",
            "controller/reconcilers/replica_sets/test_rollout_plan.py",
            "controller/reconcilers/replica_sets/test_ordinals.py",
        )
        for each in ("replica_set_plan", "replica_set_status", "membership", "finished", "readiness", "scale_down", "rollout_plan")
    ),
    _module("controller/reconcilers/virtual_machines/restart_turns.py", "controller/reconcilers/virtual_machines/test_node_loss.py"),
    _module("controller/reconcilers/fencing/fencing_plan.py", "controller/reconcilers/fencing/test_fencing_plan.py"),
    _module("controller/sealing/seal_plan.py", "controller/sealing/test_seal_plan.py"),
    _module("handler/guardian/decisions.py", "handler/guardian/test_decisions.py"),
    _module("controller/reconcilers/pods/liveness.py", "controller/reconcilers/pods/test_liveness.py"),
    _module(
        "controller/reconcilers/pods/absences.py",
        "controller/reconcilers/pods/test_absences.py",
        "controller/reconcilers/pods/test_liveness.py",
    ),
    _module("apiserver/apis/virt/lifecycle/conditions.py", "apiserver/apis/virt/test_conditions.py"),
    _module("handler/cpu/capabilities.py", "handler/cpu/test_capabilities.py"),
    _module("handler/identity/plan.py", "handler/identity/test_plan.py"),
    _module("handler/probes/tally.py", "handler/probes/test_tally.py"),
    _module(
        "handler/reconcilers/guests/guest_plan.py",
        "handler/reconcilers/test_guest_plan.py",
        "handler/reconcilers/test_guest_changes.py",
    ),
    _module(
        "handler/reconcilers/guests/guest_operations.py",
        "handler/reconcilers/test_guest_operations.py",
        "handler/reconcilers/test_guest_plan.py",
    ),
    _module("handler/reconcilers/guests/guest_probes.py", "handler/reconcilers/test_guest_probes.py"),
    _module(
        "handler/reconcilers/guests/guest_report.py",
        "handler/reconcilers/test_guest_report.py",
        "handler/reconcilers/test_reboot_loops.py",
    ),
    _module("handler/reconcilers/migrations/migration_stalls.py", "handler/reconcilers/test_migration_stalls.py"),
    _module(
        "handler/reconcilers/migrations/side_plan.py",
        "handler/reconcilers/test_migration_plan.py",
        "handler/reconcilers/test_migration_limits.py",
    ),
    _module("handler/reconcilers/migrations/migration_limits.py", "handler/reconcilers/test_migration_limits.py"),
    _module("handler/pods/hanging.py", "handler/pods/test_hanging.py"),
    _module("handler/plugins/answers.py", "handler/plugins/test_answers.py"),
    _module("handler/plugins/turns.py", "handler/plugins/test_turns.py"),
    _module("handler/storage/answers.py", "handler/storage/test_answers.py"),
    _module("handler/network/departed.py", "handler/network/test_departed.py"),
    _module("handler/network/results.py", "handler/network/test_results.py"),
    _module("launcher/main/decisions/incoming_migration.py", "launcher/main/test_incoming_migration.py"),
    _module("launcher/main/decisions/life.py", "launcher/main/test_life.py"),
    _module("launcher/main/decisions/known.py", "launcher/main/test_known.py"),
    _module("launcher/main/decisions/machines.py", "launcher/main/test_machines.py", "launcher/main/test_known.py"),
    _module("launcher/main/decisions/power_off.py", "launcher/main/test_power_off.py"),
    _module("launcher/main/decisions/requests.py", "launcher/main/test_requests.py", "launcher/main/test_given_xml.py"),
    _module("apiserver/endpoints/filters/authorization.py", "apiserver/endpoints/filters/test_authorization.py"),
    _module("apiserver/endpoints/filters/expiring.py", "apiserver/endpoints/filters/test_expiring.py"),
    _module(
        "apiserver/registry/generic/transactions.py",
        "apiserver/registry/generic/test_transactions.py",
        "apiserver/registry/virt/test_disk_claims.py",
    ),
    _module(
        "apiserver/endpoints/filters/authentication.py",
        "apiserver/endpoints/filters/test_authentication_headers.py",
        "apiserver/endpoints/filters/test_authentication.py",
    ),
)


def chosen(words: Sequence[str]) -> tuple[Module, ...]:
    for word in words:
        if not any(_is_named(module, word) for module in MODULES):
            raise ValueError(f"no module {word!r}: {', '.join(module.path for module in MODULES)}")
    return tuple(module for module in MODULES if not words or any(_is_named(module, word) for word in words))


def _is_named(module: Module, word: str) -> bool:
    return word in (module.path, PurePosixPath(module.path).stem)

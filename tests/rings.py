"""The ring of each test module: ``check`` before each commit, ``test`` for each change, ``all`` before an issue is closed.

CONTRIBUTING.md, "Rings, slices and samples", describes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final, Literal

from tests.cluster import turns

Ring = Literal["check", "test", "all"]
RINGS: Final[tuple[Ring, ...]] = ("check", "test", "all")
"""Each ring includes those before it."""

CAP_SECONDS: Final = 150
"""Processor time for the additions to one ``make test``."""
CHANGES_SECONDS: Final = 100
"""Share of it for further modules of changed packages after the first; the rest is for the slice."""

DIRECTORIES: Final[Mapping[str, Ring]] = MappingProxyType(
    {
        "architecture": "check",
        "unit": "check",
        "contracts": "check",
        "component": "test",
        "component/client": "check",  # 163 tests in 3 CPU-seconds, and 63 in 2
        "component/launcher": "check",
        "benchmarks": "test",
        "faults": "test",
        "fuzz": "test",
        "models": "test",
        "reference_library": "test",
        "reference_server": "test",
        "host": "test",
        "cluster": "test",
    }
)
"""Ring of a directory of ``tests``; subdirectories and the tables below override it."""

EXCEPTIONS: Final[Mapping[str, Ring]] = MappingProxyType(
    {
        "contracts/test_cel_as_go.py": "test",  # they build Go programs, and take seconds
        "contracts/test_encryption_as_go.py": "test",
    }
)
"""Modules in another ring than their directory's, except ``all``."""


@dataclass(frozen=True, slots=True)
class Row:
    module: str
    seconds: int
    """Estimated processor time, including guests."""
    packages: tuple[str, ...]
    """Product paths from the repository's root; a change to them, or to the module, runs it."""


def _row(module: str, seconds: int, *packages: str) -> Row:
    return Row(module, seconds, packages)


ROWS: Final = (
    _row("benchmarks/test_attacks.py", 30, "benchmarks/attacks", "apiserver/endpoints/http"),
    _row("benchmarks/test_bench.py", 60, "benchmarks/api"),
    _row("benchmarks/test_gauge.py", 20, "benchmarks"),
    _row("benchmarks/test_imports.py", 20, "benchmarks/imports.py", "importer"),
    _row("reference_server/test_placement.py", 8, "apiserver/apis/virt/v1alpha1/placement.py"),
    _row("reference_server/test_stream_rights.py", 30, "apiserver/endpoints", "apiserver/admission"),
    _row("reference_library/test_health.py", 60, "examples/argocd", "controller/reconcilers/virtual_machines"),
    _row("host/handler/test_guest_migrates6.py", 25, "handler/network", "launcher/ipv6"),
    _row("host/handler/test_hot_plug_interfaces.py", 90, "handler/network", "launcher/main", "launcher/hypervisor"),
    _row("host/handler/test_storage_plugins.py", 15, "handler/storage", "examples/plugins"),
    _row("host/launcher/test_authorized_keys.py", 15, "launcher/main", "apiserver/apis/virt/hardware"),
    _row("host/launcher/test_cloud.py", 150, "launcher/domain", "importer"),
    _row("host/launcher/test_copied_disks.py", 100, "launcher/domain", "launcher/hypervisor"),
    _row("host/launcher/test_disk_driver.py", 15, "launcher/domain", "launcher/hypervisor"),
    _row("host/launcher/test_domain_xml.py", 20, "apiserver/apis/virt/domainxml", "launcher/domain"),
    _row("host/launcher/test_ending.py", 60, "launcher/main"),
    _row("host/launcher/test_firmware.py", 70, "launcher/domain", "launcher/main"),
    _row("host/launcher/test_first_boot.py", 35, "launcher/main", "launcher/domain"),
    _row("host/launcher/test_further_devices.py", 35, "launcher/domain", "launcher/hypervisor"),
    _row("host/launcher/test_guest_agent.py", 20, "launcher/main", "launcher/hypervisor"),
    _row("host/launcher/test_hardware.py", 25, "launcher/domain"),
    _row("host/launcher/test_network_disks.py", 40, "launcher/domain", "launcher/main"),
    _row("host/launcher/test_nfs_disks.py", 30, "launcher/domain"),
    _row("host/launcher/test_processors_and_memory.py", 45, "launcher/domain", "launcher/hypervisor"),
    _row("host/launcher/test_rbd_disks.py", 20, "launcher/domain"),
    _row("host/launcher/test_shareable.py", 10, "launcher/domain"),
    _row("unit/testbed/test_bill_on_request.py", 45, "images/debian"),
    _row("models/test_fencing.py", 60, "apiserver/apis/virt/guards.py", "controller/sealing", "handler/guardian"),
    _row("cluster/test_autoscaling.py", 60, "apiserver/registry/generic/scaling.py", "controller/reconcilers/replica_sets"),
    _row("cluster/test_bad_days_matrix.py", 45, "controller/reconcilers", "handler/reconcilers", "launcher/main"),
    _row("cluster/test_cloud.py", 150, "launcher/domain", "importer"),
    _row("cluster/test_node_protocol.py", 45, "controller/manager", "controller/reconcilers/nodes", "charts"),
    _row("cluster/test_drain_matrix.py", 80, "controller/evictions", "controller/reconcilers/migrations"),
    _row("cluster/test_disks_and_cards.py", 20, "launcher/domain", "controller/reconcilers/launcher_pods"),
    _row("cluster/test_domain_xml.py", 50, "apiserver/apis/virt/domainxml", "launcher/domain"),
    _row("cluster/test_etcd_move.py", 40, "apiserver/kubectl", "charts"),
    _row("cluster/test_eviction_strategies.py", 80, "controller/evictions", "charts"),
    _row("cluster/test_filesystems.py", 35, "launcher/domain", "launcher/main"),
    _row("cluster/test_firmware.py", 35, "launcher/domain", "launcher/main"),
    _row("cluster/test_first_boot.py", 50, "launcher/main", "launcher/domain"),
    _row("cluster/test_further_networks.py", 90, "handler/network", "controller/reconcilers/launcher_pods"),
    _row("cluster/test_guardians.py", 150, "handler/guardian", "controller/sealing"),
    _row("cluster/test_guest_agent.py", 50, "launcher/main", "handler/reconcilers"),
    _row("cluster/test_helm4.py", 60, "controller/reconcilers/virtual_machines", "apiserver/registry/virt"),
    _row("cluster/test_host_devices.py", 25, "handler/devices", "controller/reconcilers/launcher_pods"),
    _row("cluster/test_hotplug_disks.py", 60, "handler/storage", "apiserver/apis/virt/spec", "controller/reconcilers/pods"),
    _row("cluster/test_hotplug_interfaces.py", 80, "handler/network", "handler/reconcilers", "apiserver/apis/virt/spec"),
    _row("cluster/test_imports.py", 45, "importer", "launcher/main"),
    _row("cluster/test_limits.py", 60, "launcher/main", "controller/reconcilers/launcher_pods"),
    _row("cluster/test_migration_policies.py", 120, "handler/reconcilers", "controller/reconcilers/migrations"),
    _row("cluster/test_network_disks.py", 45, "launcher/domain", "launcher/main"),
    _row("cluster/test_node_certificates_matrix.py", 40, "certs", "controller/reconcilers/certificates", "handler/identity"),
    _row("cluster/test_node_restriction_matrix.py", 10, "apiserver/admission", "apiserver/registry/virt"),
    _row("cluster/test_node_loss.py", 40, "apiserver/kubectl", "controller/reconcilers/nodes", "controller/reconcilers/pods"),
    _row("cluster/test_node_shutdown.py", 50, "handler/node.py", "controller/reconcilers"),
    _row("cluster/test_non_operational.py", 60, "controller/reconcilers/non_operational", "apiserver/apis/virt/lifecycle/failed_starts.py"),
    _row("cluster/test_other_clients.py", 40, "apiserver/endpoints"),
    _row("cluster/test_passt.py", 30, "launcher/main", "handler/network"),
    _row("cluster/test_plugins.py", 120, "handler/plugins", "handler/storage", "examples/plugins"),
    _row("cluster/test_probes.py", 40, "handler/probes"),
    _row("cluster/test_resources.py", 20, "launcher/domain", "controller/reconcilers/launcher_pods"),
    _row(
        "cluster/test_rollouts.py",
        60,
        "controller/reconcilers/replica_sets",
        "apiserver/registry/virt/replica_sets.py",
        "apiserver/kubectl",
    ),
    _row("cluster/test_slides.py", 20, "handler/streams", "apiserver/kubectl"),
    _row("cluster/test_stream_rights_matrix.py", 10, "apiserver/endpoints", "handler/streams"),
    _row("cluster/test_takeover.py", 30, "controller/manager", "controller/runtime", "certs"),
    _row("cluster/test_uninstall.py", 60, "charts", "controller/manager"),
)


def ring_of(module: str) -> Ring:
    if any(row.module == module for row in ROWS):
        return "all"
    if module in EXCEPTIONS:
        return EXCEPTIONS[module]
    directory = next((str(each) for each in PurePosixPath(module).parents if str(each) in DIRECTORIES), PurePosixPath(module).parts[0])
    return DIRECTORIES[directory]


def includes(ring: Ring, other: Ring) -> bool:
    return RINGS.index(other) <= RINGS.index(ring)


@dataclass(frozen=True, slots=True)
class Addition:
    row: Row
    why: str


def additions(commit: str, changed: Iterable[str], rows: Sequence[Row] = ROWS) -> list[Addition]:
    """Return the additions to the ring ``test``: modules of changed packages, then the commit's slice.

    Both follow the table's order, from a place given by the commit, so the next commit gets others. Left out are modules beyond the
    cap, and a second module that needs the cluster alone, because the whole run waits for it.

    Args:
        commit: in hexadecimal digits; without one, nothing is added.
        changed: paths of files from the repository's root.
    """
    if not commit or not rows:
        return []
    first = number_of(commit) % len(rows)
    rotated = (*rows[first:], *rows[:first])
    because = reasons(changed, rows)
    found: list[Addition] = []
    for row in (each for each in rotated if each.module in because):
        if _fits(row, found, CHANGES_SECONDS if found else CAP_SECONDS):
            found.append(Addition(row, because[row.module]))
    for row in (each for each in rotated if each.module not in because):
        if _fits(row, found, CAP_SECONDS):
            found.append(Addition(row, f"the slice of {commit[:8]}"))
    return found


def reasons(changed: Iterable[str], rows: Sequence[Row] = ROWS) -> dict[str, str]:
    """Return why each module of a changed package should run, by module."""
    paths = tuple(changed)
    return {row.module: reason for row in rows if (reason := _changed(row, paths))}


def _fits(row: Row, found: Sequence[Addition], cap: int) -> bool:
    if _is_alone(row) and any(_is_alone(each.row) for each in found):
        return False
    return sum(each.row.seconds for each in found) + row.seconds <= cap


def _changed(row: Row, paths: Sequence[str]) -> str:
    own = f"tests/{row.module}"
    package = next((each for each in (own, *row.packages) if any(path == each or path.startswith(f"{each}/") for path in paths)), None)
    return f"{package} changed" if package else ""


def _is_alone(row: Row) -> bool:
    path = PurePosixPath(row.module)
    return path.parts[0] == "cluster" and path.stem in turns.ALONE


def number_of(commit: str) -> int:
    return int(commit[:8] or "0", 16)


def is_in_sample(index: int, of: int, commit: str, family: str) -> bool:
    """Return whether the commit's sample of one in ``of`` has this case; families of one case come in different runs."""
    return index % of == (number_of(commit) + number_of(hashlib.sha256(family.encode()).hexdigest())) % of

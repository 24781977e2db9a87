"""Readers of a machine's hardware in all processes see the same before and after an edit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from apiserver.apis.virt.rights import pod_rights
from apiserver.apis.virt.spec import attachments, chosen_cpu
from apiserver.apis.virt.spec.described import domain_of, size_of
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from controller.reconcilers import disk_claims
from controller.reconcilers.launcher_pods import cpu, domain_xml, downward_api, launcher_pod, made_from
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.pods import mounted_sources
from controller.reconcilers.settings import Settings
from handler.reconcilers.guests import access_credentials, guest_imports
from handler.reconcilers.guests.guest_machine import machine_of
from handler.storage import requests
from launcher.protocol import messages
from tests.unit.apiserver.apis.virt.domainxml.documents import document
from tests.unit.controller.reconcilers.builders import a_migration, a_vm, an_attempt

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS: Final = Settings(launcher_image="registry.example/virt-launcher:v1")
FIELDS: Final = {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}
RUNS: Final[dict[str, Any]] = {
    "accessCredentials": [
        {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}}
    ],
    "domain": {
        "cpu": {"cores": 2, "model": "EPYC", "features": [{"name": "ibpb", "policy": "require"}]},
        "memory": {"guest": "256Mi"},
        "firmware": {"persistentState": {"claimName": "state"}},
        "devices": {
            "disks": [
                {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "root", "import": {"http": {"url": "https://h/i"}}}},
                {"name": "answers", "type": "Secret", "source": {"name": "answers"}},
                {"name": "facts", "type": "DownwardAPI", "source": FIELDS},
                {"name": "server", "type": "NBD", "source": {"host": "nbd.example"}},
                {"name": "file", "type": "HostDisk", "source": {"path": "/var/disk.img"}},
                {"name": "made", "type": "Plugin", "source": {"plugin": "p"}},
                {"name": "read", "type": "PersistentVolumeClaim", "source": {"name": "read"}, "readOnly": True},
            ],
            "interfaces": [{"name": "further", "network": "blue", "type": "bridge"}],
        },
    },
}
DESIRED: Final[dict[str, Any]] = {"domain": {"cpu": {"cores": 1}, "memory": {"guest": "128Mi"}, "devices": {"disks": [], "interfaces": []}}}
XML: Final[dict[str, Any]] = {"domainXML": document(), "domain": {"memory": {"guest": "256Mi"}}}


def a_machine(spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    vm = a_vm(phase="Running", attempts=[an_attempt()], **spec)
    vm["status"] |= {"nodeName": "node1", **status}
    return vm


def with_propagation(vm: dict[str, Any]) -> object:
    return access_credentials.with_propagation(vm, {}, messages.Status(1, started=True), NOW)


def target(vm: dict[str, Any]) -> object:
    return launcher_pod.target_pod(vm, a_migration(), 1, {}, SETTINGS, Placement(kvm=True))


READERS: Final[tuple[Callable[[dict[str, Any]], object], ...]] = (
    domain_of,
    size_of,
    pod_rights.named_by,
    attachments.of,
    attachments.pod_annotations,
    chosen_cpu.is_to_choose,
    VirtualMachineStrategy().locks,
    VirtualMachineStrategy().shared_locks,
    disk_claims.claims_of,
    disk_claims.claimed,
    disk_claims.servers_of,
    disk_claims.files_of,
    cpu.node_labels,
    cpu.is_the_nodes,
    downward_api.notes,
    made_from.spec_hash,
    mounted_sources.of,
    target,
    guest_imports.of,
    requests.disks_of,
    with_propagation,
    lambda vm: machine_of(vm, "qemu", (), None),
)


@pytest.mark.parametrize("reader", READERS, ids=lambda each: getattr(each, "__qualname__", ""))
def test_a_reader_gives_what_runs(reader: Callable[[dict[str, Any]], object]) -> None:
    before, after = a_machine(RUNS), a_machine(DESIRED, running={"generation": 1, **RUNS})
    assert reader(after) == reader(before)
    assert reader(after) != reader(a_machine(DESIRED))


@pytest.mark.parametrize(
    "reader",
    [domain_of, size_of, chosen_cpu.is_to_choose, lambda vm: domain_xml.requirements(vm, kvm=False), target, made_from.spec_hash],
    ids=["domain_of", "size_of", "is_to_choose", "domain_xml.requirements", "target", "spec_hash"],
)
def test_a_reader_gives_the_xml_that_runs(reader: Callable[[dict[str, Any]], object]) -> None:
    before, after = a_machine(XML), a_machine(DESIRED, running={"generation": 1, **XML})
    assert reader(after) == reader(before)
    assert reader(after) != reader(a_machine(DESIRED))

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.errors import Cause, Details, Invalid
from apiserver.apis.virt.v1alpha1 import kubevirt_fields
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.planning import Planner
from apiserver.registry.virt.migration_policies import MigrationPolicyStrategy
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

STRATEGIES: dict[str, Any] = {
    "VirtualMachine": VirtualMachineStrategy(),
    "Migration": MigrationStrategy(),
    "MigrationPolicy": MigrationPolicyStrategy(),
}
MANIFESTS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("VirtualMachine", {"running": True, "domain": {}}, {"spec.running": "spec.runStrategy"}),
    ("VirtualMachine", {"template": {"spec": {"domain": {}}}}, {"spec.template": "spec.domain"}),
    ("VirtualMachine", {"domain": {}, "volumes": [{"name": "a"}]}, {"spec.volumes": "spec.domain.devices.disks"}),
    ("VirtualMachine", {"domain": {}, "networks": [{"name": "a"}]}, {"spec.networks": "spec.domain.devices.interfaces"}),
    ("VirtualMachine", {"domain": {}, "evictionStrategy": "None"}, {"spec.evictionStrategy": "Shutdown"}),
    (
        "VirtualMachine",
        {"domain": {"devices": {"disks": [{"name": "a", "disk": {"bus": "virtio"}}, {"name": "b", "containerDisk": {"image": "c"}}]}}},
        {"spec.domain.devices.disks[0].disk": "target.bus", "spec.domain.devices.disks[1].containerDisk": "source.reference"},
    ),
    (
        "VirtualMachine",
        {"domain": {"devices": {"disks": [{"type": "PersistentVolumeClaim", "source": {"claimName": "a"}}]}}},
        {"spec.domain.devices.disks[0].source.claimName": "source.name"},
    ),
    (
        "VirtualMachine",
        {"domain": {"devices": {"interfaces": [{"name": "a", "masquerade": {}, "macAddress": "02:00:00:00:00:01"}]}}},
        {"spec.domain.devices.interfaces[0].masquerade": "type: masquerade", "spec.domain.devices.interfaces[0].macAddress": "mac"},
    ),
    ("Migration", {"vmiName": "a"}, {"spec.vmiName": "spec.selector.name"}),
    ("MigrationPolicy", {"bandwidthPerMigration": "64Mi"}, {"spec.bandwidthPerMigration": "spec.bandwidth"}),
]


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": copy.deepcopy(spec)}


def _said(kind: str, spec: dict[str, Any]) -> dict[str, str]:
    strict = WriteOptions(field_validation="Strict")
    try:
        return {each.path: each.detail for each in Planner(STRATEGIES[kind]).read(_object(kind, spec), strict)}
    except errors.Invalid as refused:
        return {each.field: each.message for each in refused.details.causes}


@pytest.mark.parametrize(("kind", "spec", "expected"), MANIFESTS)
def test_a_field_of_kubevirt_is_refused_with_ours_and_the_page(kind: str, spec: dict[str, Any], expected: dict[str, str]) -> None:
    said = _said(kind, spec)
    for field, instead in expected.items():
        assert instead in said[field].partition("use ")[2]
        assert said[field].endswith(f"({kubevirt_fields.PAGE})")


def test_another_unknown_field_or_value_has_no_hint() -> None:
    said = _said("VirtualMachine", {"domain": {"running": True}, "evictionStrategy": "Never"})
    assert said.keys() == {"spec.domain.running", "spec.evictionStrategy"}
    assert not any("KubeVirt" in each for each in said.values())


def test_failed_apply_names_our_field_in_message_and_cause() -> None:
    causes = (Cause("FieldValueInvalid", "field not declared in schema", "spec.running"), Cause("FieldValueInvalid", "no", "spec.x"))
    refused = Planner(VirtualMachineStrategy()).with_hints(Invalid("failed", Details(name="a", causes=causes)))
    hint = kubevirt_fields.hint("spec.running")
    assert "spec.runStrategy" in hint
    assert refused.message == f"failed; spec.running: {hint}"
    assert [each.message for each in refused.details.causes] == [f"field not declared in schema: {hint}", "no"]
    other = Invalid("failed", Details(causes=causes[1:]))
    assert Planner(VirtualMachineStrategy()).with_hints(other) is other


def test_the_page_that_hints_name_is_there() -> None:
    assert (Path(__file__).parents[6] / kubevirt_fields.PAGE).is_file()

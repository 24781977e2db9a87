"""From a VM and nodes' labels to its pod and ``<cpu>``, through all processes.

The test machines have no KVM, so files hold the expected results. ``UPDATE_GOLDEN=1 pytest`` with this file writes them again.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring, indent, tostring

import pytest

from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import chosen_cpu
from controller.reconcilers.actions import CreatePod, WriteStatus
from controller.reconcilers.migrations import migration_plan
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from handler.reconcilers.guests import guest_status
from handler.reconcilers.guests.guest_machine import machine_of
from launcher.domain.definition import Definition
from launcher.domain.document import to_xml
from launcher.protocol import messages
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm
from tests.unit.controller.reconcilers.processors import CASCADELAKE, MILAN, ROME, SKYLAKE, a_node

GOLDEN = Path(__file__).parents[1] / "golden/chosen_cpu"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
AMD = (a_node("rome", ROME, zone="1"), a_node("milan", MILAN, zone="2"))
INTEL = (a_node("skylake", SKYLAKE), a_node("cascadelake", CASCADELAKE))
FEATURES = [{"name": "pcid"}, {"name": "rtm", "policy": "forbid"}, {"name": "ibpb", "policy": "disable"}]

CASES: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "amd": (AMD, {}),
    "intel": (INTEL, {}),
    "the-newer-one-by-its-label": (AMD, {"nodeSelector": {"zone": "2"}}),
    "features-of-the-machine": (AMD, {"domain": {"cpu": {"cores": 2, "features": FEATURES}, "devices": {}}}),
    "one-node-past-the-scheduler": (AMD, {"nodeName": "milan"}),
    "two-vendors": ((*AMD, *INTEL), {}),
    "no-labels": ((a_node("plain", None), a_node("blank", ("", (), ()))), {}),
    "named": (AMD, {"domain": {"cpu": {"model": "EPYC"}, "devices": {}}}),
    "passed-through-as-asked": (AMD, {"domain": {"cpu": {"model": "host-passthrough"}, "devices": {}}}),
}


def started(nodes: tuple[dict[str, Any], ...], vm: dict[str, Any], *, kvm: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    actions = plan(Observed(vm=vm, pods=(), claims={}, now=NOW, settings=Settings("launcher"), kvm_offered=kvm, nodes=nodes))
    (pod,) = (each.pod for each in actions if isinstance(each, CreatePod))
    (status,) = (each.status for each in actions if isinstance(each, WriteStatus))
    return pod, {**vm, "status": status}


def cpu_xml(machine: messages.Machine) -> str:
    definition = Definition(machine.namespace, machine.name, machine.uid, machine.domain, machine.accelerator)
    element = fromstring(to_xml(definition)).find("cpu")
    assert element is not None
    indent(element)
    element.tail = ""
    return tostring(element, encoding="unicode")


def a_document(nodes: tuple[dict[str, Any], ...], spec: dict[str, Any]) -> dict[str, Any]:
    vm = a_vm(**spec)
    pod, vm = started(nodes, vm)
    machine = machine_of(vm, "kvm", (), chosen_cpu.chosen(vm))
    return {
        "nodes": {
            each["metadata"]["name"]: sorted(
                key for key in each["metadata"]["processors"] if key.startswith((names.HOST_MODEL_LABELS, names.CPU_MODEL_LABELS))
            )
            for each in nodes
        },
        "spec": {**spec, "domain": {key: value for key, value in vm["spec"]["domain"].items() if key == "cpu"}},
        "pod": {key: pod["spec"].get(key) for key in ("nodeName", "nodeSelector", "affinity")},
        "status.cpu": vm["status"].get("cpu"),
        "cpu": cpu_xml(machine).splitlines(),
    }


@pytest.mark.parametrize("name", CASES)
def test_pod_status_and_domain_are_as_reviewed(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    text = json.dumps(a_document(*CASES[name]), indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_there_is_no_other_golden_file() -> None:
    assert {each.stem for each in GOLDEN.iterdir()} == set(CASES)


def test_an_emulated_machine_is_given_the_same_as_everywhere() -> None:
    pod, vm = started(AMD, a_vm(), kvm=False)
    assert "nodeSelector" not in pod["spec"]
    assert "cpu" not in vm["status"]
    _, vm = started(AMD, a_vm())
    assert '<cpu mode="maximum"' in cpu_xml(machine_of(vm, "qemu", (), chosen_cpu.chosen(vm)))


def test_each_attempt_chooses_its_cpu_again() -> None:
    _, vm = started(AMD[:1], a_vm())
    vm["status"] |= {
        "phase": "Failed",
        "attempts": [{**vm["status"]["attempts"][0], "endTime": "2025-12-31T00:00:00Z", "result": "Failed"}],
    }
    pod, again = started(AMD[1:], vm)
    assert again["status"]["cpu"]["model"] == "EPYC-Milan"
    assert pod["spec"]["nodeSelector"][names.CPU_MODEL_LABELS + "EPYC-Milan"] == "true"
    assert "cpu" not in started(AMD, vm, kvm=False)[1]["status"]


def reported(vm: dict[str, Any], model: str, accelerator: messages.Accelerator = "kvm") -> dict[str, Any]:
    domain = messages.DomainStatus("d", "u", accelerator, "running", "booted", cpu_model=model)
    found = guest_status.running(vm, messages.Status(2, domain=domain, started=True), None, NOW)
    return {**vm, "status": {**found, "phase": "Running", "nodeName": "rome"}}


def target_of(vm: dict[str, Any]) -> dict[str, Any]:
    source = a_pod()
    source["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    labels = {names.HOST_MODEL_LABELS + "EPYC-Rome": "true", names.CPU_FEATURE_LABELS + "aes": "true"}
    relies = migration_plan.relies_on_node(a_migration(), vm, source)
    seen = migration_plan.Observed(a_migration(), vm, source, None, {}, NOW, Settings("launcher"), source_labels=labels if relies else {})
    create = migration_plan.plan(seen)[0]
    assert isinstance(create, CreatePod)
    found: dict[str, Any] = create.pod["spec"]
    return found


def test_a_migration_asks_for_what_was_chosen_and_no_more() -> None:
    _, vm = started(AMD, a_vm())
    chosen = chosen_cpu.chosen(vm)
    assert chosen is not None
    vm = reported(vm, chosen.model)
    assert vm["status"]["domain"]["cpuModel"] == "EPYC-Rome-v2"
    assert set(target_of(vm)["nodeSelector"]) == {
        names.CPU_MODEL_LABELS + "EPYC-Rome-v2",
        *(names.CPU_FEATURE_LABELS + each for each in ("amd-ssbd", "amd-stibp", "ibpb")),
    }
    assert machine_of(vm, "kvm", (), chosen_cpu.running(vm)) == machine_of(vm, "kvm", (), chosen)


@pytest.mark.parametrize(("model", "accelerator"), [("", "kvm"), ("EPYC", "kvm"), ("EPYC-Rome-v2", "qemu")])
def test_guest_started_without_chosen_cpu_relies_on_its_nodes(model: str, accelerator: messages.Accelerator) -> None:
    """An older virt-handler does not pass it on, and an older virt-launcher does not report it."""
    _, vm = started(AMD, a_vm())
    vm = reported(vm, model, accelerator)
    assert "cpuModel" not in vm["status"]["domain"]
    assert set(target_of(vm)["nodeSelector"]) == {names.HOST_MODEL_LABELS + "EPYC-Rome", names.CPU_FEATURE_LABELS + "aes"}
    assert '<cpu mode="host-passthrough"' in cpu_xml(machine_of(vm, "kvm", (), chosen_cpu.running(vm)))


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"cpu": {}},
        {"cpu": {"model": "host-passthrough", "message": "why"}, "domain": {"cpuModel": "host-passthrough"}},
        {"cpu": None, "domain": {"cpuModel": "EPYC"}},
    ],
)
def test_the_nodes_own_processor_is_nothing_chosen(status: dict[str, Any]) -> None:
    vm = {**a_vm(), "status": status}
    assert chosen_cpu.chosen(vm) is chosen_cpu.running(vm) is None


def test_chosen_cpu_is_ignored_once_the_machine_names_one() -> None:
    status = {"cpu": {"model": "EPYC"}, "domain": {"cpuModel": "EPYC"}}
    assert chosen_cpu.running({**a_vm(), "status": status}) == chosen_cpu.Chosen("EPYC")
    for spec in ({"domain": {"cpu": {"model": "host-model"}}}, {"domainXML": "<domain/>"}):
        assert chosen_cpu.chosen({**a_vm(**spec), "status": status}) is None

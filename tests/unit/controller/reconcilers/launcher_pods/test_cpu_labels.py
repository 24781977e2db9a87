from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt import structure
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from apiserver.apis.virt.v1alpha1.domain import cpu_names
from controller.reconcilers.launcher_pods import cpu
from controller.reconcilers.launcher_pods.scheduling import Placement, scheduling
from handler.cpu import capabilities
from handler.cpu.capabilities import Capabilities
from tests.hostile import CASES
from tests.unit.apiserver.apis.virt.domainxml.documents import document
from tests.unit.controller.reconcilers.builders import a_vm

KVM = Placement(kvm=True)
SOURCE = {"host-model-cpu.node.kubevirt.io/EPYC": "true", "cpu-feature.node.kubevirt.io/aes": "true"}


def with_cpu(model: str | None = None, *features: tuple[str, str | None], **spec: Any) -> dict[str, Any]:
    given = [{"name": name, "policy": policy} for name, policy in features]
    return a_vm(domain={"cpu": {"model": model, "features": given}, "devices": {}}, **spec)


def selected(vm: dict[str, Any], placement: Placement = KVM) -> dict[str, str]:
    found: dict[str, str] = scheduling(vm, placement).get("nodeSelector", {})
    return found


def test_model_and_features_become_node_labels_with_kvm() -> None:
    vm = with_cpu("EPYC", ("avx2", None), ("aes", "require"))
    assert selected(vm) == {
        "cpu-model.node.kubevirt.io/EPYC": "true",
        "cpu-feature.node.kubevirt.io/avx2": "true",
        "cpu-feature.node.kubevirt.io/aes": "true",
    }
    assert scheduling(vm, Placement()) == {}


@pytest.mark.parametrize("model", [None, "", "host-model", "host-passthrough"])
def test_host_model_needs_no_label_but_its_features_do(model: str | None) -> None:
    assert selected(with_cpu(model)) == {}
    assert selected(with_cpu(model, ("avx2", "require"))) == {"cpu-feature.node.kubevirt.io/avx2": "true"}


@pytest.mark.parametrize("policy", ["disable", "forbid", "optional", "force"])
def test_model_with_optional_features_needs_no_model_label(policy: str) -> None:
    assert selected(with_cpu("Skylake-Client", ("hle", policy), ("aes", None))) == {"cpu-feature.node.kubevirt.io/aes": "true"}


def test_a_forbidden_feature_is_nowhere_among_the_alternatives() -> None:
    terms = [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}, {"matchFields": []}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    rule = {"key": "cpu-feature.node.kubevirt.io/rtm", "operator": "DoesNotExist"}

    def found(**spec: Any) -> Any:
        node = scheduling(with_cpu("EPYC", ("rtm", "forbid"), **spec), KVM)["affinity"]["nodeAffinity"]
        return node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert found() == [{"matchExpressions": [rule]}]
    assert found(affinity=affinity) == [
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}, rule]},
        {"matchFields": [], "matchExpressions": [rule]},
    ]


def test_users_own_node_selector_label_wins() -> None:
    vm = with_cpu("EPYC", nodeSelector={"cpu-model.node.kubevirt.io/EPYC": "mine"})
    assert selected(vm) == {"cpu-model.node.kubevirt.io/EPYC": "mine"}


def test_pod_with_a_fixed_node_needs_no_labels_until_it_migrates() -> None:
    vm = with_cpu("EPYC", ("rtm", "forbid"), nodeName="node1")
    assert scheduling(vm, KVM) == {"nodeName": "node1"}
    vm = with_cpu("EPYC", nodeName="node1")
    assert selected(vm, Placement(kvm=True, not_on_node="node1")) == {"cpu-model.node.kubevirt.io/EPYC": "true"}


def test_source_labels_are_required_of_the_target() -> None:
    assert selected(with_cpu(), Placement(kvm=True, source_labels=SOURCE)) == SOURCE


def test_only_cpu_labels_of_the_source_are_required() -> None:
    others = {"cpu-model.node.kubevirt.io/EPYC": "true", "host-model-required-features.node.kubevirt.io/aes": "true", "zone": "a"}
    assert cpu.of_source(SOURCE | others) == SOURCE
    many = {f"cpu-feature.node.kubevirt.io/f{number:04}": "true" for number in range(2000)}
    assert list(cpu.of_source(many)) == sorted(many)[: cpu.MAX_LABELS]


def with_xml(element: str, type_: str = "@type@") -> dict[str, Any]:
    return a_vm(domainXML=document(inside=element, attributes=f"type='{type_}'"))


def test_a_machine_with_xml_has_its_processors_in_that() -> None:
    vm = with_cpu("EPYC", ("avx2", None), domainXML="<domain/>")
    assert cpu.node_labels(vm) == ()
    assert not cpu.is_the_nodes(a_vm(domainXML="<domain/>"))
    vm = with_cpu("EPYC", ("avx2", None), domainXML=document(inside="<cpu><model>Nehalem</model></cpu>", attributes="type='kvm'"))
    assert selected(vm) == {"cpu-model.node.kubevirt.io/Nehalem": "true"}


FEATURES_OF_XML = "<feature policy='{}' name='avx2'/><feature policy='require' name='aes'/>"


def test_xml_asks_for_what_the_typed_fields_ask_for() -> None:
    for policy in ("force", "require", "optional", "disable", "forbid"):
        xml = with_xml(f"<cpu mode='custom'><model>EPYC</model>{FEATURES_OF_XML.format(policy)}</cpu>")
        typed = with_cpu("EPYC", ("avx2", policy), ("aes", None))
        assert scheduling(xml, KVM) == scheduling(typed, KVM)
        assert scheduling(xml, Placement()) == {}
        assert not cpu.is_the_nodes(xml)


@pytest.mark.parametrize("mode", ["mode='host-model'", "mode='host-passthrough'", "mode='maximum'"])
def test_xml_may_have_the_nodes_processor_too(mode: str) -> None:
    vm = with_xml(f"<cpu {mode}>{FEATURES_OF_XML.format('require')}</cpu>")
    assert cpu.is_the_nodes(vm)
    assert selected(vm) == {"cpu-feature.node.kubevirt.io/avx2": "true", "cpu-feature.node.kubevirt.io/aes": "true"}


def test_minimum_model_moves_only_to_equal_or_better_processors() -> None:
    vm = with_xml("<cpu match='minimum'><model>EPYC</model></cpu>")
    assert cpu.is_the_nodes(vm)
    assert selected(vm) == {"cpu-model.node.kubevirt.io/EPYC": "true"}


def test_xml_of_an_emulated_machine_asks_for_nothing() -> None:
    vm = with_xml("<cpu mode='custom'><model>EPYC</model></cpu>", "qemu")
    assert selected(vm) == {}
    assert not cpu.is_the_nodes(with_xml("<cpu mode='maximum'/>", "qemu"))


def test_a_name_in_xml_that_makes_no_label_is_left_to_libvirt() -> None:
    vm = with_xml(f"<cpu><model>E-</model><feature policy='require' name='{'a' * 64}'/><feature policy='require' name='aes'/></cpu>")
    assert selected(vm) == {"cpu-feature.node.kubevirt.io/aes": "true"}


def test_cpu_demands_of_xml_name_their_elements() -> None:
    vm = with_xml("<cpu><model>EPYC</model><feature policy='require' name='aes'/></cpu>")
    assert cpu.demands(vm) == (
        "spec.domainXML: /domain/cpu/model: EPYC needs a node with the label cpu-model.node.kubevirt.io/EPYC; "
        "spec.domainXML: /domain/cpu/feature: aes needs a node with the label cpu-feature.node.kubevirt.io/aes"
    )
    features = "".join(f"<feature policy='require' name='f{number}'/>" for number in range(9))
    assert cpu.demands(with_xml(f"<cpu><model>EPYC</model>{features}</cpu>")).endswith(
        "; and 6 more of spec.domainXML: /domain/cpu/feature"
    )


def test_chosen_cpu_is_required_despite_disabled_features() -> None:
    vm, chosen = with_cpu(None, ("rtm", "disable"), ("aes", None)), Chosen("EPYC", ("ibpb",))
    assert selected(vm, Placement(kvm=True, chosen=chosen)) == {
        "cpu-feature.node.kubevirt.io/aes": "true",
        "cpu-model.node.kubevirt.io/EPYC": "true",
        "cpu-feature.node.kubevirt.io/ibpb": "true",
    }
    assert selected(vm, Placement(chosen=chosen)) == {}
    assert scheduling(with_cpu(None, nodeName="node1"), Placement(kvm=True, chosen=chosen)) == {"nodeName": "node1"}
    assert cpu.demands(with_cpu(), chosen) == (
        "status.cpu.model: EPYC needs a node with the label cpu-model.node.kubevirt.io/EPYC; "
        "status.cpu.features[0]: ibpb needs a node with the label cpu-feature.node.kubevirt.io/ibpb"
    )
    assert cpu.demands(with_cpu(), Chosen("EPYC", tuple("abcdef"))).endswith("; and 3 more of status.cpu.features")


@pytest.mark.parametrize(("model", "own"), [("", True), ("host-model", True), ("host-passthrough", True), ("EPYC", False)])
def test_a_guest_has_the_nodes_processor_unless_it_names_a_model(model: str, *, own: bool) -> None:
    assert cpu.is_the_nodes(with_cpu(model)) is own


def test_required_labels_are_those_virt_handler_writes() -> None:
    models, features = sorted(cpu_names.MODELS), sorted(cpu_names.FEATURES)
    written = {
        *capabilities.labels(Capabilities(models=tuple(models))),
        *capabilities.labels(Capabilities(features=tuple(features))),
    }
    assert {each.key for model in models for each in cpu.node_labels(with_cpu(model))} <= written
    assert {each.key for name in features for each in cpu.node_labels(with_cpu(None, (name, None)))} <= written
    assert len(written) == len(models) + len(features)


def test_cpu_demands_name_their_fields_and_are_limited() -> None:
    assert cpu.demands(with_cpu("host-model")) == ""
    assert cpu.demands(with_cpu("EPYC", ("aes", None))) == (
        "spec.domain.cpu.model: EPYC needs a node with the label cpu-model.node.kubevirt.io/EPYC; "
        "spec.domain.cpu.features[0]: aes needs a node with the label cpu-feature.node.kubevirt.io/aes"
    )
    assert cpu.demands(with_cpu(None, ("aes", "disable"), ("rtm", "forbid"))) == (
        "spec.domain.cpu.features[1]: rtm needs a node without the label cpu-feature.node.kubevirt.io/rtm"
    )
    told = cpu.demands(with_cpu(None, *((f"f{number}", None) for number in range(9))))
    assert names.CPU_FEATURE_LABELS + "f3;" in told
    assert told.endswith("; and 5 more of spec.domain.cpu.features")


def test_cpu_demands_of_any_sound_machine_are_bounded() -> None:
    """Objects of older versions, or from etcd, were never validated; kube-apiserver refuses invalid labels."""
    machines = [each.object for each in CASES if each.kind == "VirtualMachine" and each.path.startswith("spec.domain")]
    sound = [each for each in machines if structure.has_sound_domain(each)]
    assert sound
    for vm in sound:
        scheduling(vm, KVM)
        told = cpu.demands(vm)
        assert len(told) <= 500
        assert told.isprintable()

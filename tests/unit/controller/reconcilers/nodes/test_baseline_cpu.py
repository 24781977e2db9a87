from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.virt.hardware import cpu_models
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from apiserver.apis.virt.v1alpha1.domain import cpu_names
from controller.reconcilers.nodes import baseline_cpu
from controller.reconcilers.nodes.baseline_cpu import Choice, choose, matches
from tests.unit.controller.reconcilers.processors import CASCADELAKE, MILAN, ROME, SKYLAKE, a_node

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def model(*nodes: dict[str, Any], **asked: Any) -> str:
    found = choose(nodes, asked, ()).chosen
    return found.model if found is not None else ""


def why_none(*nodes: dict[str, Any], **asked: Any) -> str:
    found = choose(nodes, asked, ())
    assert found.chosen is None
    assert found.status() == {"model": "host-passthrough", "message": found.message}
    return found.message


def test_the_best_model_is_that_of_the_least_node() -> None:
    rome, milan = a_node("a", ROME), a_node("b", MILAN)
    assert model(milan) == "EPYC-Milan"
    assert model(rome) == "EPYC-Rome-v2"
    assert model(rome, milan) == model(milan, rome) == "EPYC-Rome-v2"
    assert model(a_node("a", SKYLAKE), a_node("b", CASCADELAKE)) == "Skylake-Server-noTSX-IBRS"
    assert model(a_node("b", CASCADELAKE)) == "Cascadelake-Server-v5"


def test_common_protections_go_with_the_model_unless_mentioned() -> None:
    nodes = [a_node("a", ROME), a_node("b", MILAN)]
    found = choose(nodes, {}, ())
    assert found.chosen == Chosen("EPYC-Rome-v2", ("amd-ssbd", "amd-stibp", "ibpb"))
    assert found.status() == {"model": "EPYC-Rome-v2", "features": ["amd-ssbd", "amd-stibp", "ibpb"]}
    assert choose(nodes, {}, iter(["ibpb", "avx2"])) == Choice(Chosen("EPYC-Rome-v2", ("amd-ssbd", "amd-stibp")))
    assert choose([a_node("a", ("EPYC", ("EPYC",), ()))], {}, ()).status() == {"model": "EPYC"}


class Kind(frozenset[str]):
    """The labels of a kind of processor; counts how often they are looked through."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        Kind.times += 1
        return super().__iter__()


def test_labels_of_a_kind_are_looked_through_once_for_all_nodes() -> None:
    nodes = [a_node(str(number), MILAN) for number in range(100)]
    kind = Kind(nodes[0]["metadata"][baseline_cpu.PROCESSORS])
    for each in nodes:
        each["metadata"][baseline_cpu.PROCESSORS] = kind
    assert [model(*nodes), model(*nodes)] == ["EPYC-Milan", "EPYC-Milan"]
    assert Kind.times <= 1


def test_a_pool_is_the_nodes_that_offer_kvm_and_have_labels() -> None:
    milan = a_node("b", MILAN)
    gone, emulated = a_node("c", ROME, kvm="0", capacity="0"), a_node("d", None)
    nameless = a_node("e", ("EPYC-Rome", (), ("aes",)))
    assert model(milan, gone, emulated, nameless) == "EPYC-Milan"
    assert model(milan, a_node("c", ROME, kvm="0")) == "EPYC-Rome-v2"
    assert model(milan, a_node("c", ROME, capacity="0")) == "EPYC-Rome-v2"
    assert why_none(gone, emulated, nameless) == why_none() == "no node that the machine may run on offers KVM and has CPU model labels"


def test_a_pool_is_the_nodes_that_the_pod_may_go_to() -> None:
    nodes = (a_node("a", ROME, zone="1"), a_node("b", MILAN, zone="2"), a_node("c", SKYLAKE, zone="3"))
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [each]}]} for each in ("1", "2")]
    assert model(*nodes, nodeSelector={"zone": "2"}) == "EPYC-Milan"
    assert model(*nodes, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}) == "EPYC-Rome-v2"
    assert model(*nodes, nodeName="c") == "Skylake-Server-noTSX-IBRS"
    assert model(*nodes, nodeSelector={names.CPU_FEATURE_LABELS + "virt-ssbd": "true"}) == "EPYC-Milan"


def test_no_common_model_exists_for_two_vendors() -> None:
    common = {each for each in MILAN[1] if each in SKYLAKE[1]}
    assert {"Nehalem", "Westmere"} < common
    told = why_none(a_node("a", MILAN), a_node("b", SKYLAKE))
    assert told.startswith("the machine may run on nodes of AMD and Intel, which have no CPU model in common: select nodes")


def test_a_node_of_amd_is_given_no_model_of_intel() -> None:
    assert why_none(a_node("a", ("EPYC-Rome", ("Nehalem", "Westmere", "qemu64"), ()))) == (
        "the nodes that the machine may run on have no CPU model in common"
    )


@pytest.mark.parametrize("host", ["EPYC-of-the-future", "", "Penryn", "Opteron_G3"])
def test_of_a_processor_that_is_not_known_nothing_is_concluded(host: str) -> None:
    told = why_none(a_node("a", MILAN), a_node("odd", (host, MILAN[1], MILAN[2])))
    assert told == "the machine may run on node odd, and libvirt does not know the model of that node's processor"


def test_unknown_models_are_never_chosen() -> None:
    models = ("EPYC-of-the-future", "qemu64", "kvm64", "phenom", "Opteron_G3", "EPYC-Rome")
    assert model(a_node("a", ("EPYC-Rome", models, ()))) == "EPYC-Rome"
    assert not model(a_node("a", ("EPYC-Rome", models[:-1], ())))


def test_node_is_described_in_one_short_line() -> None:
    told = why_none(a_node("a\x1b[2J" * 400, ("", ("EPYC",), ())))
    assert len(told) <= 300
    assert told.isprintable()


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "zone", "operator": "In", "values": ["2"]}, False),
        ({"key": "none", "operator": "In", "values": ["1"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "none", "operator": "Exists"}, False),
        ({"key": "none", "operator": "DoesNotExist"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "size", "operator": "Gt", "values": ["9"]}, True),
        ({"key": "size", "operator": "Gt", "values": ["10"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["11"]}, False),
        ({"key": "size", "operator": "Lt", "values": ["11"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["10"]}, False),
        ({"key": "size", "operator": "Lt", "values": ["9"]}, False),
        ({"key": "size", "operator": "Lt", "values": ["11", "12"]}, False),
        ({"key": "kind", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "none", "operator": "Lt", "values": ["1"]}, False),
        ({"key": "size", "operator": "Lt", "values": ["many"]}, False),
        ({"key": "size", "operator": "Lt"}, False),
        ({"key": "zone", "operator": "Like", "values": ["1"]}, False),
        ({"key": "cpu-model.node.kubevirt.io/EPYC", "operator": "In", "values": ["true"]}, True),
        ({"key": "cpu-model.node.kubevirt.io/Nehalem", "operator": "In", "values": ["mine"]}, True),
        ({"key": "cpu-feature.node.kubevirt.io/rtm", "operator": "DoesNotExist"}, True),
        ({"key": "cpu-feature.node.kubevirt.io/aes", "operator": "DoesNotExist"}, False),
    ],
)
def test_affinity_is_judged_as_kube_scheduler_does(requirement: dict[str, Any], *, fits: bool) -> None:
    """https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#NodeSelectorTerm."""
    labels = {"zone": "1", "size": "10", "kind": "big"}
    node = a_node("a", ("EPYC", ("EPYC",), ("aes",)), **labels, **{"cpu-model.node.kubevirt.io/Nehalem": "mine"})

    def found(*terms: dict[str, Any]) -> bool:
        return matches(node, {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}})

    here = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    assert found({"matchExpressions": [requirement]}) is fits
    assert found({"matchExpressions": [requirement], "matchFields": [here]}) is fits
    assert found({"matchExpressions": [requirement, {"key": "zone", "operator": "Exists"}]}) is fits
    assert not found({"matchExpressions": [requirement], "matchFields": [{**here, "values": ["b"]}]})
    assert found({"matchFields": [here]})
    assert not found({"matchFields": [{**here, "key": "metadata.uid"}]})
    assert found({}, {"matchExpressions": [requirement]}) is fits
    assert not found({})
    assert not found()


def test_a_selector_asks_for_all_of_its_labels() -> None:
    node = a_node("a", ROME, zone="1")
    assert matches(node, {})
    assert matches(node, {"nodeSelector": {"zone": "1", "kubernetes.io/hostname": "a"}})
    assert not matches(node, {"nodeSelector": {"zone": "1", "disk": "ssd"}})
    assert not matches(node, {"nodeSelector": {"zone": "2"}})
    assert matches(node, {"nodeName": "a"})
    assert not matches(node, {"nodeName": "b"})
    assert not matches(node, {"nodeName": "A"})


def test_oversized_selectors_stop_the_search_for_nodes() -> None:
    """Each term is compared with every label of every node in one turn of the event loop."""
    labels = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(200)]
    names_of = {"key": "k", "operator": "NotIn", "values": [str(number) for number in range(309)]}
    terms: list[dict[str, Any]] = [{"matchExpressions": [*labels, names_of], "matchFields": []}]
    asked = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    assert model(a_node("a", MILAN), **asked) == "EPYC-Milan"
    terms[0]["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    assert "more than 512 terms, labels and values" in why_none(a_node("a", MILAN), **asked)
    empty: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}] * 513}}}}
    assert "more than 512" in why_none(a_node("a", MILAN), **empty)
    assert "more than 512" in why_none(a_node("a", MILAN), nodeSelector={f"k{number}": "" for number in range(513)})
    assert "no node" in why_none(a_node("a", MILAN), nodeSelector={f"k{number}": "" for number in range(512)})
    terms[:] = [{"matchExpressions": labels[:1]} for _ in range(257)]
    assert "more than 512" in why_none(a_node("a", MILAN), **asked)
    terms[:] = [{} for _ in range(257)]
    assert "more than 512" in why_none(a_node("a", MILAN), nodeSelector={f"k{number}": "" for number in range(257)}, **asked)
    terms[:] = [{"matchExpressions": labels[:3]} for _ in range(200)]
    assert "more than 512" in why_none(a_node("a", MILAN), **asked)
    nodes = iter([a_node("a", MILAN)])
    assert choose(nodes, asked, ()).chosen is None
    assert next(nodes), "no node was compared"


def test_processor_labels_are_shared_between_equal_nodes() -> None:
    one, other = (a_node(name, MILAN, ssd="true")["metadata"] for name in "ab")
    assert one[baseline_cpu.PROCESSORS] is other[baseline_cpu.PROCESSORS]
    assert one["labels"] == {"kubernetes.io/hostname": "a", "ssd": "true"}
    assert "annotations" not in one


def test_node_with_too_many_labels_is_ignored_and_trimmed() -> None:
    assert baseline_cpu.MAX_PROCESSORS == 1024
    host, models, features = MILAN
    room = baseline_cpu.MAX_PROCESSORS - 1 - len(models) - len(features)
    most, more = (a_node("a", (host, models, (*features, *(f"x{each}" for each in range(count))))) for count in (room, room + 1))
    assert len(most["metadata"][baseline_cpu.PROCESSORS]) == baseline_cpu.MAX_PROCESSORS
    assert model(most) == "EPYC-Milan"
    kept = {"labels": {"kubernetes.io/hostname": "a"}, baseline_cpu.PROCESSORS: frozenset(), baseline_cpu.CANDIDATE: False}
    assert more["metadata"] == {"name": "a", "uid": "a", **kept}
    assert model(more, a_node("b", ROME)) == "EPYC-Rome-v2"


def test_known_models_match_libvirts_above_the_oldest() -> None:
    known = [each for models in cpu_models.MODELS.values() for each in models]
    assert len(known) == len(set(known))
    assert set(known) <= cpu_names.MODELS
    below = {"486", "athlon", "Conroe", "core2duo", "coreduo", "kvm32", "kvm64", "n270", "Opteron_G1", "Opteron_G2", "Opteron_G3", "Penryn"}
    below |= {"pentium", "pentium2", "pentium3", "phenom", "qemu32", "qemu64", "KnightsMill"}
    assert cpu_names.MODELS - set(known) == below | {f"{each}-v1" for each in below}
    assert set(cpu_models.PROTECTIONS) <= cpu_names.FEATURES


@pytest.mark.parametrize(
    ("better", "than"),
    [
        ("SapphireRapids", "Icelake-Server-v7"),
        ("Icelake-Server-noTSX", "Cascadelake-Server-v5"),
        ("Skylake-Server-v5", "Skylake-Server-IBRS"),
        ("Skylake-Server-noTSX-IBRS", "Skylake-Server-IBRS"),
        ("Skylake-Server-IBRS", "Skylake-Server"),
        ("Skylake-Server", "Skylake-Client-v4"),
        ("Broadwell-IBRS", "Broadwell-noTSX"),
        ("Haswell", "IvyBridge-IBRS"),
        ("Westmere", "Nehalem-IBRS"),
        ("EPYC-Genoa", "EPYC-Milan-v2"),
        ("EPYC-Rome", "EPYC-v4"),
        ("EPYC-IBPB", "EPYC"),
        ("EPYC", "Opteron_G5"),
        ("Dhyana-v2", "Dhyana"),
    ],
)
def test_newer_and_protected_models_come_first(better: str, than: str) -> None:
    order = cpu_models.MODELS[cpu_models.VENDORS[better]]
    assert order.index(better) < order.index(than)

from __future__ import annotations

import json

import pytest

from apiserver.apis.virt.places import names
from handler.cpu import capabilities
from handler.cpu.capabilities import Capabilities, UnknownCapabilities

DOCUMENT = """
<domainCapabilities>
  <cpu>
    <mode name='host-passthrough' supported='yes'/>
    <mode name='host-model' supported='{host}'>
      <model fallback='forbid'>EPYC-Rome</model>
      <vendor>AMD</vendor>
      <feature policy='require' name='x2apic'/>
      <feature policy='disable' name='pni'/>
    </mode>
    <mode name='custom' supported='{custom}'>
      <model usable='yes' vendor='AMD'>EPYC</model>
      <model usable='yes' vendor='AMD' canonical='EPYC'>EPYC-v1</model>
      <model usable='no' vendor='Intel'>Haswell</model>
      <model usable='unknown' vendor='Intel'>Broadwell</model>
      <blockers model='Haswell'><feature name='pcid'/></blockers>
    </mode>
  </cpu>
</domainCapabilities>
"""
HOST = """
<cpu mode='custom' match='exact'>
  <model fallback='forbid'>EPYC-Rome</model>
  <feature policy='require' name='avx2'/>
  <feature policy='require' name='x2apic'/>
  <feature policy='disable' name='pni'/>
</cpu>
"""


def text(host: str = "yes", custom: str = "yes", expanded: str = HOST) -> str:
    return json.dumps({"domainCapabilities": DOCUMENT.format(host=host, custom=custom), "hostModel": expanded})


def test_usable_models_and_required_features_are_the_nodes() -> None:
    assert capabilities.parse(text()) == Capabilities("EPYC-Rome", ("x2apic",), ("EPYC", "EPYC-v1"), ("avx2", "x2apic"))


def test_unsupported_cpu_modes_give_no_capabilities() -> None:
    assert capabilities.parse(text(host="no", custom="no", expanded="")) == Capabilities()
    assert capabilities.labels(Capabilities()) == {}


def test_labels_are_named_as_kubevirt_names_them() -> None:
    assert capabilities.labels(capabilities.parse(text())) == {
        "host-model-cpu.node.kubevirt.io/EPYC-Rome": "true",
        "cpu-model.node.kubevirt.io/EPYC": "true",
        "cpu-model.node.kubevirt.io/EPYC-v1": "true",
        "host-model-required-features.node.kubevirt.io/x2apic": "true",
        "cpu-feature.node.kubevirt.io/avx2": "true",
        "cpu-feature.node.kubevirt.io/x2apic": "true",
    }


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "a/b", "a" * 64, "ä"])
def test_a_name_that_makes_no_label_is_left_out(name: str) -> None:
    assert capabilities.labels(Capabilities(host_model=name, models=(name, "EPYC"), features=(name,))) == {
        "cpu-model.node.kubevirt.io/EPYC": "true"
    }


def test_there_are_so_many_labels_at_most_and_models_come_first() -> None:
    many = tuple(f"f{number:03}" for number in range(capabilities.MAX_LABELS))
    found = capabilities.labels(Capabilities(host_model="EPYC", models=("EPYC",), features=many))
    assert len(found) == capabilities.MAX_LABELS
    assert names.CPU_MODEL_LABELS + "EPYC" in found
    assert names.CPU_FEATURE_LABELS + many[-1] not in found


@pytest.mark.parametrize("wrong", ["", "[]", "{}", '{"domainCapabilities": "<a>", "hostModel": ""}', "x", '"a"'])
def test_malformed_libvirt_answers_are_reported(wrong: str) -> None:
    with pytest.raises(UnknownCapabilities):
        capabilities.parse(wrong)


def test_only_labels_of_ours_are_stale() -> None:
    present = [
        "a",
        "kubernetes.io/hostname",
        "cpu-model.node.kubevirt.io/EPYC",
        "cpu-feature.node.kubevirt.io/avx",
        "cpu-feature.node.kubevirt.io/sse",
    ]
    assert capabilities.stale(present, {"cpu-feature.node.kubevirt.io/sse": "true"}) == [
        "cpu-feature.node.kubevirt.io/avx",
        "cpu-model.node.kubevirt.io/EPYC",
    ]
    assert capabilities.stale([], {"cpu-feature.node.kubevirt.io/sse": "true"}) == []

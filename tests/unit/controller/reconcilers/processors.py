"""Nodes with KVM as virt-controller keeps them, with virt-handler's labels for these processors."""

from __future__ import annotations

from typing import Any

from apiserver.apis.virt.places import names
from controller.reconcilers.trimming import trim_node

_OLD = ("qemu64", "kvm64", "Conroe", "Penryn", "Nehalem", "Nehalem-IBRS", "Nehalem-v1", "Nehalem-v2", "Westmere", "Westmere-v1")
_SKYLAKE = (*_OLD, "Haswell-noTSX", "Broadwell-noTSX-IBRS", "Skylake-Client-noTSX-IBRS", "Skylake-Server-noTSX-IBRS", "Skylake-Server-v3")
_ROME = (*_OLD, "EPYC", "EPYC-v1", "EPYC-IBPB", "EPYC-v2", "EPYC-Rome", "EPYC-Rome-v1", "EPYC-Rome-v2")
_OF_INTEL = ("pcid", "spec-ctrl", "ssbd", "stibp", "aes", "avx2", "vmx")
_OF_AMD = ("amd-ssbd", "amd-stibp", "ibpb", "aes", "avx2", "svm")

SKYLAKE = ("Skylake-Server-noTSX-IBRS", _SKYLAKE, (*_OF_INTEL, "md-clear"))
CASCADELAKE = ("Cascadelake-Server-noTSX", (*_SKYLAKE, "Skylake-Server-v5", "Cascadelake-Server-noTSX", "Cascadelake-Server-v5"), _OF_INTEL)
ROME = ("EPYC-Rome", _ROME, _OF_AMD)
MILAN = ("EPYC-Milan", (*_ROME, "EPYC-Milan", "EPYC-Milan-v1"), (*_OF_AMD, "pcid", "virt-ssbd"))


def labels_of_processor(host_model: str, models: tuple[str, ...], features: tuple[str, ...]) -> dict[str, str]:
    keys = [names.HOST_MODEL_LABELS + host_model] if host_model else []
    keys += [names.CPU_MODEL_LABELS + each for each in models] + [names.CPU_FEATURE_LABELS + each for each in features]
    return dict.fromkeys(keys, "true")


def a_node(
    name: str,
    processor: tuple[str, tuple[str, ...], tuple[str, ...]] | None,
    kvm: str = "1k",
    capacity: str = "1k",
    **labels: str,
) -> dict[str, Any]:
    """Return a trimmed node; ``processor`` has host model, models and features, or is None where guests are emulated."""
    own = labels_of_processor(*processor) if processor is not None else {}
    return trim_node(
        {
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **labels, **own}, "annotations": {"a": "b"}},
            "status": {"allocatable": {names.KVM_RESOURCE: kvm}, "capacity": {names.KVM_RESOURCE: capacity}},
        }
    )

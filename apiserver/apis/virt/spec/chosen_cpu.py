"""The CPU that virt-controller chose for a KVM machine without one: ``status.cpu``.

Only virt-launcher's report (``status.domain.cpuModel``) shows a running guest's CPU, because an older virt-handler starts guests with the
node's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.hardware import cpu
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.spec import running as running_form


@dataclass(frozen=True, slots=True)
class Chosen:
    """A chosen CPU: a model of libvirt, and further features."""

    model: str
    features: tuple[str, ...] = ()


def is_to_choose(vm: Mapping[str, Any]) -> bool:
    """Return whether virt-controller chooses the machine's CPU model with KVM: there is neither a model nor ``domainXML``."""
    spec = running_form.spec_of(vm)
    return not spec.get("domainXML") and not dig(spec, "domain", "cpu", "model")


def chosen(vm: Mapping[str, Any]) -> Chosen | None:
    """Return the CPU that virt-controller chose for the newest attempt.

    None without one, for the node's, such as ``host-model``, and if the spec has a model or ``domainXML``.
    """
    model = dig_vm(vm, "status", "cpu", "model") or ""
    if not model or model in cpu.OF_THE_NODE or not is_to_choose(vm):
        return None
    return Chosen(model, tuple(dig_vm(vm, "status", "cpu", "features") or ()))


def running(vm: Mapping[str, Any]) -> Chosen | None:
    """Return the chosen CPU if the guest runs with it, else None."""
    found = chosen(vm)
    return found if found is not None and dig_vm(vm, "status", "domain", "cpuModel") == found.model else None


def given(domain: Domain, found: Chosen | None) -> Domain:
    """Return ``domain`` with the chosen CPU, if any, as its model and features."""
    if found is None:
        return domain
    said = domain.get("cpu") or {}
    added = [{"name": each, "policy": "require"} for each in found.features]
    return {**domain, "cpu": {**said, "model": found.model, "features": [*(said.get("features") or ()), *added]}}

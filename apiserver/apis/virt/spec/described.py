"""The domain described by ``spec.domain``, ``spec.domainXML``, or both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.virt.domainxml import beside, reading, sizes
from apiserver.apis.virt.domainxml.parsing import Malformed
from apiserver.apis.virt.hardware.given import Domain


def domain_of(vm: Mapping[str, Any]) -> Domain:
    """Return ``spec.domain``; for a machine with XML, the typed fields of the same meaning.

    Invalid XML is ignored here: virt-api refuses it, and ``structure`` reports it otherwise.
    """
    spec = vm.get("spec") or {}
    domain: Domain = spec.get("domain") or {}
    xml = spec.get("domainXML")
    if not isinstance(xml, str):
        return domain
    try:
        return beside.combined(domain, reading.read(xml))
    except Malformed:
        return domain


def size_of(vm: Mapping[str, Any]) -> Domain:
    """Return a domain with only processors and memory of :func:`domain_of`; those of XML are cached for lists."""
    spec = vm.get("spec") or {}
    domain: Domain = spec.get("domain") or {}
    xml = spec.get("domainXML")
    found = sizes.SIZES.of(xml) if isinstance(xml, str) else None
    return domain if found is None else beside.sized(domain, found.memory_bytes, found.topology)

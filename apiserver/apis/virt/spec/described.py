"""The domain that a machine describes: by ``spec.domain``, by ``spec.domainXML``, or by both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.virt.domainxml import beside, reading, sizes
from apiserver.apis.virt.domainxml.parsing import Malformed
from apiserver.apis.virt.hardware.given import Domain


def domain_of(vm: Mapping[str, Any]) -> Domain:
    """Return ``spec.domain``; of a machine with XML, what the typed fields would be if they said what it means.

    XML that cannot be read means nothing: virt-api refuses it, and ``structure`` tells of it whoever is given it all the same.
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
    """Return a domain with the processors and the memory of :func:`domain_of`: of XML those alone, which are remembered for lists."""
    spec = vm.get("spec") or {}
    domain: Domain = spec.get("domain") or {}
    xml = spec.get("domainXML")
    found = sizes.SIZES.of(xml) if isinstance(xml, str) else None
    return domain if found is None else beside.sized(domain, found.memory_bytes, found.topology)

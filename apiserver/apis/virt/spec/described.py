"""The domain of a machine's running form: by ``domain``, ``domainXML``, or both.

The grammar of ``domainXML`` takes 2 MiB, and few machines need it, so it is imported late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.spec import running


def domain_of(vm: Mapping[str, Any]) -> Domain:
    """Return the domain that the guest runs with, or starts with (:func:`running.spec_of`).

    Of XML, it has the typed fields of the same meaning. Invalid XML is ignored; ``structure`` reports it.
    """
    spec = running.spec_of(vm)
    domain: Domain = spec.get("domain") or {}
    xml = spec.get("domainXML")
    if not isinstance(xml, str):
        return domain
    from apiserver.apis.virt.domainxml import beside, parsing, reading

    try:
        return beside.combined(domain, reading.read(xml))
    except parsing.Malformed:
        return domain


def size_of(vm: Mapping[str, Any]) -> Domain:
    """Return :func:`domain_of`, but of XML only processors and memory; these are cached for lists."""
    spec = running.spec_of(vm)
    domain: Domain = spec.get("domain") or {}
    xml = spec.get("domainXML")
    if not isinstance(xml, str):
        return domain
    from apiserver.apis.virt.domainxml import beside, sizes

    found = sizes.SIZES.of(xml)
    return domain if found is None else beside.sized(domain, found.memory_bytes, found.topology)

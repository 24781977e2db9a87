"""Needs of what only XML can ask for (``spec.domainXML``), beside those that it shares with the typed fields."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.hardware import features
from controller.reconcilers.launcher_pods.needs import MIB, Needs

_COUNTED_CACHE_BYTES: Final = features.TRANSLATION_CACHE_MEBIBYTES * MIB
"""Part of the translation cache that every pod is given already (``launcher.QEMU_BYTES``)."""


def needs(vm: Object, *, kvm: bool) -> Needs:
    """Return the memory of displays and threads of the XML, and of the emulator's translation cache.

    ``kvm``: the pod has KVM, so that ``@type@`` means that.
    """
    text = dig(vm, "spec", "domainXML")
    if not text:
        return Needs()
    try:
        found = reading.read(text)
    except parsing.Malformed:  # it does not start; virt-launcher says why
        return Needs()
    emulated = found.type == "qemu" or not kvm
    return Needs(overhead_bytes=found.device_bytes + (max(0, found.cache_bytes - _COUNTED_CACHE_BYTES) if emulated else 0))

"""Requirements of features that only XML has (``spec.domainXML``)."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.hardware import features
from apiserver.apis.virt.spec import running
from controller.reconcilers.launcher_pods.requirements import MIB, Requirements

_COUNTED_CACHE_BYTES: Final = features.TRANSLATION_CACHE_MEBIBYTES * MIB
"""Each pod has this part (``launcher_pods.launcher.QEMU_BYTES``)."""


def requirements(vm: Object, *, kvm: bool) -> Requirements:
    """Return the memory for the XML's displays and threads, and the emulator's translation cache.

    ``kvm``: whether the pod has KVM, and so ``@type@`` means KVM.
    """
    text = running.spec_of(vm).get("domainXML")
    if not text:
        return Requirements()
    try:
        found = reading.read(text)
    except parsing.Malformed:
        return Requirements()
    emulated = found.type == "qemu" or not kvm
    return Requirements(overhead_bytes=found.device_bytes + (max(0, found.cache_bytes - _COUNTED_CACHE_BYTES) if emulated else 0))

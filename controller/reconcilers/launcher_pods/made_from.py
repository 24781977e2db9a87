"""The part of a machine's spec that its pod or its domain is made from. Pure.

A pod that waits for its node, its volumes or its image stays when an edit changes neither. It bears a hash of that part. Users may change
the annotation: they decide only whether their own pod, in which no guest runs yet, is replaced.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from apiserver.apis.meta.objects import Object, dig

IN_NEITHER: Final = frozenset(
    {"runStrategy", "rerun", "evictionStrategy", "terminationGracePeriodSeconds", "readinessProbe", "livenessProbe"}
)
"""Fields of ``spec`` that virt-controller and virt-handler read when they need them. A pod has a copy of the grace period as well, which
bounds it: whoever asks whether a pod is outdated compares that one, too."""


def spec_hash(vm: Object) -> str:
    """Return the hash of all fields of ``spec`` but :data:`IN_NEITHER`; fields of a later release count, whatever they do."""
    spec = {key: value for key, value in (dig(vm, "spec") or {}).items() if key not in IN_NEITHER}
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]

"""The hash of the fields of ``spec`` that determine the pod and the domain. Pure.

virt-controller writes it into the pod's annotations. A pod without a guest stays if an edit does not change the hash.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import running

IN_NEITHER: Final = frozenset(
    {"runStrategy", "rerun", "evictionStrategy", "onNodeLoss", "terminationGracePeriodSeconds", "readinessProbe", "livenessProbe"}
)
"""Read when needed. ``attempts.is_outdated`` compares the grace period, which the kubelet does not lengthen."""


def spec_hash(vm: Object) -> str:
    """Return the hash of all fields of the running form's spec but :data:`IN_NEITHER`; unknown fields count."""
    spec = {key: value for key, value in running.spec_of(vm).items() if key not in IN_NEITHER}
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]

"""Versions of the node protocol, between virt-controller and virt-handlers: statuses, labels and annotations of pods, Leases.

Any change except an added optional field increments ``VERSION``. A virt-handler annotates its node's Lease with its versions.
virt-controller assigns guests only to nodes with a version in ``SPOKEN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from apiserver.apis.meta.objects import Object, annotations_of
from apiserver.apis.virt.places import names

VERSION: Final = 1
SPOKEN: Final = frozenset({VERSION})
BEFORE: Final = frozenset({1})
"""Versions of a process without the annotation."""
ANNOTATION: Final = f"{names.GROUP}/contract-versions"
"""On a node's Lease: its virt-handler's versions, as comma-separated numbers."""
MAX_TEXT: Final = 64
_NUMBERS: Final = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4})*")


def written(versions: Iterable[int] = SPOKEN) -> str:
    """Return these versions as the annotation's value: ``1,2``."""
    return ",".join(map(str, sorted(versions)))


def spoken_by(lease: Object) -> frozenset[int]:
    """Return the versions of this Lease's virt-handler: ``BEFORE`` without annotation, empty if invalid."""
    text = annotations_of(lease).get(ANNOTATION)
    if text is None:
        return BEFORE
    found = str(text)
    return frozenset(map(int, found.split(","))) if len(found) <= MAX_TEXT and _NUMBERS.fullmatch(found) else frozenset()


def is_understood(lease: Object) -> bool:
    """Return whether this Lease's virt-handler and virt-controller share a version of the node protocol."""
    return not SPOKEN.isdisjoint(spoken_by(lease))


def refusal(node: str, lease: Object) -> str:
    """Return the message that ``node`` gets no guests because its virt-handler shares no version; that is not checked."""
    theirs = written(spoken_by(lease))
    says = f"uses version {theirs} of the node protocol" if theirs else "reports no valid version of the node protocol"
    return f"node {node} cannot run guests: its virt-handler {says}, but virt-controller uses {written()}; upgrade both to the same version"

"""Versions of what virt-controller and virt-handlers write for each other: statuses, pods with their labels and annotations, Leases. Pure.

They are replaced one after another when the chart is upgraded. Members may be added without a new version, as long as whoever does not know
them can do without; a change that needs more raises ``VERSION``, and says in ``SPOKEN`` which earlier ones it goes on with. A virt-handler
says its own in the annotation of its node's Lease; virt-controller gives a node no guests whose virt-handler speaks none of its versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from apiserver.apis.meta.objects import Object, annotations_of
from apiserver.apis.virt.places import names

VERSION: Final = 1
SPOKEN: Final = frozenset({VERSION})
"""By this release."""
BEFORE: Final = frozenset({1})
"""By releases that did not say so."""
ANNOTATION: Final = f"{names.GROUP}/contract-versions"
"""On the Lease of a node: what its virt-handler speaks, as numbers with commas between them."""
MAX_TEXT: Final = 64
"""Characters of the annotation that are looked at."""
_NUMBERS: Final = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4})*")


def written(versions: Iterable[int] = SPOKEN) -> str:
    """Return the annotation's value."""
    return ",".join(map(str, sorted(versions)))


def spoken_by(lease: Object) -> frozenset[int]:
    """Return what the virt-handler speaks whose Lease this is; nothing where it says what is none."""
    text = annotations_of(lease).get(ANNOTATION)
    if text is None:
        return BEFORE
    found = str(text)
    return frozenset(map(int, found.split(","))) if len(found) <= MAX_TEXT and _NUMBERS.fullmatch(found) else frozenset()


def is_understood(lease: Object) -> bool:
    """Return whether virt-controller of this release and the virt-handler whose Lease this is have a version in common."""
    return not SPOKEN.isdisjoint(spoken_by(lease))


def refusal(node: str, lease: Object) -> str:
    """Return why a node gets no guests, for people."""
    theirs = written(spoken_by(lease))
    says = f"speaks version {theirs} of the contract" if theirs else "says nothing that is a version of the contract"
    return f"node {node} gets no guests: its virt-handler {says}, and virt-controller speaks {written()}"

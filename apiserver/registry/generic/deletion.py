"""Deletion of one object: at once, or marked until its finalizers are gone.

Source: ``deletionFinalizersForGarbageCollection`` of ``k8s.io/apiserver/pkg/registry/generic/registry``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta.objectmeta import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from apiserver.apis.meta.objects import Object, finalizers_of, is_deleting
from apiserver.apis.meta.times import to_rfc3339
from apiserver.registry.generic.options import BACKGROUND, FOREGROUND, ORPHAN, DeleteOptions

_COLLECTOR: Final = frozenset({ORPHAN_FINALIZER, FOREGROUND_FINALIZER})


def finalizers(obj: Object, options: DeleteOptions) -> list[str]:
    """Return an object's finalizers after a deletion with these options; only the garbage collector's may change."""
    present = finalizers_of(obj)
    wanted = [each for each in present if each not in _COLLECTOR]
    if _orphans(present, options):
        wanted.append(ORPHAN_FINALIZER)
    if _foreground(present, options):
        wanted.append(FOREGROUND_FINALIZER)
    return present if sorted(wanted) == sorted(present) else wanted


def _orphans(present: list[str], options: DeleteOptions) -> bool:
    if options.orphan_dependents is not None:
        return options.orphan_dependents
    if options.policy in {FOREGROUND, BACKGROUND}:
        return False
    return options.policy == ORPHAN or ORPHAN_FINALIZER in present


def _foreground(present: list[str], options: DeleteOptions) -> bool:
    if options.orphan_dependents is not None or options.policy in {BACKGROUND, ORPHAN}:
        return False
    return options.policy == FOREGROUND or FOREGROUND_FINALIZER in present


def mark(obj: Object, options: DeleteOptions, now: datetime) -> bool:
    """Mark ``obj`` in place as being deleted; return True if it has no finalizers, so the caller can remove it at once.

    If it is marked already, change at most the garbage collector's finalizers.
    """
    metadata = obj["metadata"]
    if held := finalizers(obj, options):
        metadata["finalizers"] = held
    else:
        metadata.pop("finalizers", None)
    if not is_deleting(obj):
        metadata["deletionTimestamp"] = to_rfc3339(now)
        metadata["deletionGracePeriodSeconds"] = 0
        metadata["generation"] = int(metadata.get("generation") or 0) + 1
    return not held


def released(obj: Object, old: Object) -> bool:
    """Return whether ``old`` is being deleted, and ``obj``, its update, has no finalizers."""
    return is_deleting(old) and not finalizers_of(obj)

"""``updateStrategy`` and ``status.revisions`` of a VirtualMachineReplicaSet, as of a StatefulSet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import Field

from apiserver.apis.meta.objects import dig
from apiserver.apis.meta.schema import Int32, IntOrString, Model
from apiserver.apis.meta.validation import FieldError, Path, invalid
from apiserver.apis.virt.lifecycle import revisions
from apiserver.apis.virt.v1alpha1.domain.rules import validate_between

Object = Mapping[str, Any]

STRATEGY: Final = Path("spec.updateStrategy")
HISTORY: Final = Path("spec.revisionHistoryLimit")
MAX_HISTORY: Final = 100
_LARGEST: Final = (1 << 31) - 1


class RollingUpdate(Model):
    """How many machines a RollingUpdate makes unavailable, and the lowest ordinal that it changes."""

    max_unavailable: IntOrString | None = Field(
        None,
        description="Number of machines that may be unavailable during an update, or a percentage of replicas such as 25%, rounded down to "
        "at least 1. Default 1.",
    )
    partition: Int32 | None = Field(None, description="Machines with lower ordinals keep the template of before. Default 0.")


class UpdateStrategy(Model):
    """What an edit of the template does to existing machines."""

    type: Literal["RollingUpdate", "OnDelete"] | None = Field(
        None,
        description="RollingUpdate: edits the machines, the highest ordinal first, and restarts guests that do not take the edit live. "
        "OnDelete: a machine gets the template when you delete it. Default RollingUpdate.",
    )
    rolling_update: RollingUpdate | None = Field(None, description="Details of RollingUpdate.")


def validate(spec: Object) -> Iterator[FieldError]:
    """Yield the errors in a set's update strategy and length of history."""
    strategy, limit = spec.get("updateStrategy"), spec.get("revisionHistoryLimit")
    for path, given in ((STRATEGY, strategy), (HISTORY, limit)):
        if given is not None and spec.get("ordinals") is None:
            yield invalid(path, given, "requires spec.ordinals")
    if limit is not None:
        yield from validate_between(limit, 0, MAX_HISTORY, HISTORY)
    for field, least in (("maxUnavailable", 1), ("partition", 0)):
        given = dig(strategy or {}, "rollingUpdate", field)
        path = STRATEGY.child("rollingUpdate", field)
        if isinstance(given, str):
            if revisions.percentage(given) is None:
                yield invalid(path, given, "must be an integer, or a percentage from 1% to 100% such as 25%")
        elif given is not None:
            yield from validate_between(given, least, _LARGEST, path)
    if dig(strategy or {}, "rollingUpdate") and dig(strategy or {}, "type") == revisions.ON_DELETE:
        yield invalid(STRATEGY.child("rollingUpdate"), dig(strategy or {}, "rollingUpdate"), "only allowed for type RollingUpdate")

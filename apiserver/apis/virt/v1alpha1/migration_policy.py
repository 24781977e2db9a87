"""``MigrationPolicy``: limits for live migrations of selected machines.

Cluster-scoped, because it distributes the nodes' network bandwidth and the waiting time of other migrations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field

from apiserver.apis.meta import names, objectmeta, quantity
from apiserver.apis.meta.objects import dig
from apiserver.apis.meta.schema import ATOMIC, ATOMIC_MAP, Int32, Int64, Kind, Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_many
from apiserver.apis.virt.kinds import dig_policy
from apiserver.apis.virt.lifecycle import migration_policies as limits
from apiserver.apis.virt.v1alpha1.domain.rules import validate_between
from apiserver.apis.virt.v1alpha1.scheduling import SelectorOperator

Object = Mapping[str, Any]

SPEC: Final = Path("spec")
MAX_REQUIREMENTS: Final = 32
"""Labels and expressions of a selector."""
MAX_VALUES: Final = 64
"""Values of an expression."""
POST_COPY: Final = "is not supported: during post-copy, the loss of either node loses the guest; use allowPause"
"""Why ``allowPostCopy`` must be false."""


class ObjectSelectorRequirement(Model):
    """A condition on one label."""

    key: str = Field(description="The label's key.")
    operator: SelectorOperator = Field(description="Comparison of the label with the values.")
    values: list[str] | None = Field(
        None, description="Values that In and NotIn compare with; empty for Exists and DoesNotExist.", json_schema_extra=ATOMIC
    )


class ObjectSelector(Model):
    """Conditions on labels, which all must hold. Without conditions it selects all."""

    match_labels: dict[str, str] | None = Field(None, description="Labels that an object must have with exactly these values.")
    match_expressions: list[ObjectSelectorRequirement] | None = Field(
        None, description="Further conditions on labels.", json_schema_extra=ATOMIC
    )


class MigrationPolicySelectors(Model):
    """The machines of a policy. Both selectors must match."""

    namespace_selector: ObjectSelector | None = Field(
        None, description="Conditions on the labels of the machine's namespace. Default: every namespace.", json_schema_extra=ATOMIC_MAP
    )
    virtual_machine_selector: ObjectSelector | None = Field(
        None, description="Conditions on the machine's own labels. Default: every machine.", json_schema_extra=ATOMIC_MAP
    )


class MigrationPolicySpec(Model):
    """Limits for migrations of the selected machines. Absent fields have the cluster's defaults."""

    selectors: MigrationPolicySelectors | None = Field(
        None,
        description="The machines. If several policies select a machine, the one with the most conditions applies; of equal ones, the "
        "first by name. Default: every machine.",
    )
    bandwidth: Quantity | None = Field(
        None,
        description="Maximum bytes per second of a migration, such as 100Mi; whole MiB, at least one. 0: no limit.",
    )
    max_downtime_milliseconds: Int64 | None = Field(
        None,
        description="Longest pause of the guest at the end, as QEMU estimates it. Default 300. Increase it for guests that write much "
        "memory.",
    )
    parallel_connections: Int32 | None = Field(
        None,
        description="Connections that carry the memory, from 1 to 4. Default 1. Several connections use more processors of both nodes.",
    )
    allow_auto_converge: bool | None = Field(
        None, description="True lets QEMU throttle the guest's processors if it writes memory faster than the migration sends it."
    )
    allow_post_copy: bool | None = Field(
        None, description="Must be false, because during post-copy the loss of either node loses the guest."
    )
    allow_pause: bool | None = Field(
        None,
        description="True pauses the guest when the timeout is over, for at most the same time again. Otherwise the migration fails "
        "then, and the guest stays.",
    )
    completion_timeout_per_gib: Int64 | None = Field(
        None,
        alias="completionTimeoutPerGiB",
        description="Seconds that the migration may take per GiB of the guest's memory, rounded up to whole GiB. Default 150.",
    )


class MigrationPolicy(Kind):
    """Limits for live migrations of selected machines: bandwidth, downtime, time-out."""

    spec: MigrationPolicySpec = Field(description="The machines, and the limits of their migrations.")


class MigrationOptions(Model):
    """Limits of one migration, from its policy and the cluster's defaults."""

    bandwidth: Quantity | None = Field(None, description="Bytes per second at most. 0: no limit.")
    max_downtime_milliseconds: Int64 | None = Field(None, description="Longest pause of the guest at the end, in milliseconds.")
    parallel_connections: Int32 | None = Field(None, description="Number of connections for the memory.")
    allow_auto_converge: bool | None = Field(None, description="Whether QEMU may slow down the guest's processors.")
    allow_pause: bool | None = Field(None, description="Whether the guest is paused at the timeout.")
    completion_timeout_seconds: Int64 | None = Field(
        None, description="Seconds from the phase Running until the guest is paused or the migration fails."
    )


def validate(obj: Object) -> list[FieldError]:
    """Return errors in a MigrationPolicy."""
    spec, found = obj.get("spec") or {}, []
    selectors = spec.get("selectors") or {}
    for field in ("namespaceSelector", "virtualMachineSelector"):
        found += _selector(selectors.get(field) or {}, SPEC.child("selectors", field))
    if (given := spec.get("bandwidth")) is not None:
        found += validate_bandwidth(given, SPEC.child("bandwidth")) or _validate_whole(given, SPEC.child("bandwidth"))
    for field, (least, most) in limits.BOUNDS.items():
        if (number := spec.get(field)) is not None:
            found += validate_between(number, least, most, SPEC.child(field))
    if spec.get("allowPostCopy"):
        found.append(forbidden(SPEC.child("allowPostCopy"), POST_COPY))
    return found


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Return errors in an updated MigrationPolicy; an unchanged bandwidth may stay."""
    given = dig_policy(obj, "spec", "bandwidth")
    if given is None or given != dig(old, "spec", "bandwidth"):
        return validate(obj)
    return validate({**obj, "spec": {key: value for key, value in obj["spec"].items() if key != "bandwidth"}})


def validate_bandwidth(given: object, path: Path) -> list[FieldError]:
    """Return an error for a bandwidth, a valid quantity, outside the limits; 0 is allowed, and means unlimited."""
    amount = quantity.parse(str(given))
    if amount.nanos == 0 or limits.MIN_BANDWIDTH <= amount <= limits.MAX_BANDWIDTH:
        return []
    return [invalid(path, given, f"must be 0 (no limit) or from {limits.MIN_BANDWIDTH} to {limits.MAX_BANDWIDTH}")]


def _validate_whole(given: object, path: Path) -> list[FieldError]:
    """Return an error for a fractional MiB: libvirt counts in MiB per second."""
    amount = quantity.parse(str(given))
    is_whole = amount.nanos % limits.MIN_BANDWIDTH.nanos == 0
    return [] if is_whole else [invalid(path, given, f"must be whole MiB, such as {amount.bytes >> 20}Mi")]


def _selector(selector: Object, path: Path) -> list[FieldError]:
    wanted, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if len(wanted) + len(expressions) > MAX_REQUIREMENTS:
        return [too_many(path, len(wanted) + len(expressions), MAX_REQUIREMENTS)]
    found = objectmeta.validate_labels(wanted, path.child("matchLabels"))
    for position, each in enumerate(expressions):
        if "key" in each and "operator" in each:  # the schema reports others
            found += _requirement(each, path.child("matchExpressions").index(position))
    return found


def _requirement(requirement: Object, path: Path) -> Iterator[FieldError]:
    operator, values = requirement["operator"], requirement.get("values") or []
    yield from (invalid(path.child("key"), requirement["key"], each) for each in names.qualified_name_errors(requirement["key"]))
    place = path.child("values")
    if operator in ("In", "NotIn") and not values:
        yield required(place, "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("Exists", "DoesNotExist") and values:
        yield forbidden(place, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    if len(values) > MAX_VALUES:
        yield too_many(place, len(values), MAX_VALUES)
        return
    for position, value in enumerate(values):
        yield from (invalid(place.index(position), value, each) for each in names.label_value_errors(value))

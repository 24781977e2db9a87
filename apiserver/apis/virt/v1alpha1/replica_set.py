"""``VirtualMachineReplicaSet``: fields, defaults and validation, as of a ReplicaSet of ``apps/v1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import Field

from apiserver.apis.meta import labels, objectmeta
from apiserver.apis.meta.objects import dig, namespace_of
from apiserver.apis.meta.schema import ATOMIC, ATOMIC_MAP, Int32, Int64, Kind, Model, Time, keyed_by
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals
from apiserver.apis.virt.lifecycle.replica_sets import CONDITION_TYPES
from apiserver.apis.virt.spec import placeholders
from apiserver.apis.virt.v1alpha1 import claim_templates, defaults, rollouts, size, validation
from apiserver.apis.virt.v1alpha1.allowed import NOTHING, Allowed
from apiserver.apis.virt.v1alpha1.claim_templates import ClaimRetentionPolicy, VolumeClaimTemplate
from apiserver.apis.virt.v1alpha1.domain.rules import validate_between
from apiserver.apis.virt.v1alpha1.migration_policy import ObjectSelector
from apiserver.apis.virt.v1alpha1.placement import validate_label_selector
from apiserver.apis.virt.v1alpha1.rollouts import UpdateStrategy
from apiserver.apis.virt.v1alpha1.types import Condition, VirtualMachineSpec

Object = Mapping[str, Any]

SPEC: Final = Path("spec")
SELECTOR: Final = SPEC.child("selector")
TEMPLATE: Final = SPEC.child("template")
ORDINALS: Final = SPEC.child("ordinals")
SUFFIX: Final = 6
"""Characters that a machine's name adds to its set's: a hyphen and five random ones."""
MAX_NAME: Final = validation.MAX_NAME - SUFFIX
_SAMPLE: Final = "00000"
"""To validate the template."""
_LARGEST: Final = (1 << 31) - 1
_SHARED: Final = "every machine of the set would have the same; leave it out, and each machine gets its own"


class TemplateMetadata(Model):
    """Metadata of the machines."""

    labels: dict[str, str] | None = Field(None, description="Labels of each machine and its pod. spec.selector must match them.")
    annotations: dict[str, str] | None = Field(None, description="Annotations of each machine.")
    creation_timestamp: Time | None = Field(None, description="Ignored. Programs write it as null.")


class VirtualMachineTemplate(Model):
    """The machines that the set creates."""

    metadata: TemplateMetadata | None = Field(None, description="Labels and annotations of the machines.")
    spec: VirtualMachineSpec = Field(
        description="The spec of the machines. updateStrategy says what an edit does to them. In its texts, $(vm.name) becomes the "
        "machine's name, and $(vm.suffix) the random characters at its end; with spec.ordinals, $(vm.ordinal) the number at its end."
    )


class Ordinals(Model):
    """Numbers, instead of random characters, at the ends of the machines' names."""

    start: Int32 | None = Field(None, description="The first number. Default 0. A change deletes machines with numbers out of range.")


class VirtualMachineReplicaSetSpec(Model):
    """The number of machines, and what they are."""

    replicas: Int32 | None = Field(None, description="Number of machines. Default 1. kubectl scale and autoscalers change it.")
    min_ready_seconds: Int32 | None = Field(
        None, description="Seconds that a machine must be ready without interruption to count as available. Default 0."
    )
    selector: ObjectSelector = Field(
        description="The machines of the set: those without another controller whose labels match. It must match the template's labels. "
        "Immutable.",
        json_schema_extra=ATOMIC_MAP,
    )
    template: VirtualMachineTemplate = Field(description="What a new machine is made from.")
    ordinals: Ordinals | None = Field(
        None,
        description="Present, also as {}: the set and a number name each machine, as a StatefulSet's pods. A smaller set deletes the "
        "highest numbers. The set does not replace machines that end. Immutable, except start. Default: random characters.",
    )
    volume_claim_templates: list[VolumeClaimTemplate] | None = Field(
        None,
        description="Claims that the set creates for each machine, unless they exist. The template uses that of NAME with the claim name "
        "NAME-$(vm.name). Requires ordinals. Immutable.",
        json_schema_extra=ATOMIC,
    )
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy | None = Field(
        None, description="When to delete the claims that the set created. Requires ordinals."
    )
    update_strategy: UpdateStrategy | None = Field(
        None, description="What an edit of the template does to existing machines. Requires ordinals; without, as type OnDelete."
    )
    revision_history_limit: Int32 | None = Field(
        None, description="Number of earlier templates to keep. Default 10. Requires ordinals. Large templates are dropped sooner."
    )
    paused: bool | None = Field(
        None, description="True: the set creates, updates and deletes no machines. It still adopts and releases them. Default false."
    )


class Revision(Model):
    """A template that the set has or had."""

    name: str = Field(description="A hash of the template. Machines have it as label kubevirt.io/revision.")
    revision: Int64 = Field(description="A number that grows with each edit of the template.")
    template: VirtualMachineTemplate = Field(description="The template.")
    change_cause: str | None = Field(None, description="The set's annotation kubernetes.io/change-cause at that edit.")


class VirtualMachineReplicaSetStatus(Model):
    """Numbers of machines.

    Those in deletion count only as terminatingReplicas and, without ordinals, finished ones only as finishedReplicas.
    """

    replicas: Int32 | None = Field(None, description="Number of machines.")
    fully_labeled_replicas: Int32 | None = Field(None, description="Number of machines that have all labels of the template.")
    ready_replicas: Int32 | None = Field(None, description="Number of machines with the condition Ready.")
    available_replicas: Int32 | None = Field(None, description="Number of machines that have been ready for minReadySeconds.")
    terminating_replicas: Int32 | None = Field(None, description="Number of machines that are being deleted.")
    finished_replicas: Int32 | None = Field(
        None,
        description="Number of machines that are off and will not start again by themselves: the guest powered off under RerunOnFailure or "
        "Once, its starts failed, or its node was lost and onNodeLoss is Wait. The set replaces them after a pause, and deletes them ten "
        "minutes after their end. 0 with ordinals.",
    )
    observed_generation: Int64 | None = Field(None, description="The generation of the spec that this is about.")
    current_revision: str | None = Field(None, description="With ordinals, the revision before the update, until it is complete.")
    update_revision: str | None = Field(None, description="With ordinals, the template's revision.")
    updated_replicas: Int32 | None = Field(None, description="With ordinals, the number of machines with the template's revision.")
    revisions: list[Revision] | None = Field(
        None,
        description="With ordinals, the templates, the newest last. virt-api writes them at each edit.",
        json_schema_extra=keyed_by("name"),
    )
    conditions: list[Condition] | None = Field(
        None,
        description=f"Details, each with its reason, of the types {', '.join(CONDITION_TYPES)}.",
        json_schema_extra=keyed_by("type"),
    )


class VirtualMachineReplicaSet(Kind):
    """Keeps a number of equal virtual machines, as a ReplicaSet keeps pods."""

    spec: VirtualMachineReplicaSetSpec = Field(description="The desired machines, written by users.")
    status: VirtualMachineReplicaSetStatus | None = Field(None, description="The actual machines, written by the system.")


def default(obj: dict[str, Any]) -> None:
    """Set the defaults of a VirtualMachineReplicaSet, its template and recorded templates, in place."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    if isinstance(spec.get("ordinals"), dict):
        spec["ordinals"].setdefault("start", 0)
    if isinstance(dig(spec, "template", "spec"), dict):
        defaults.default_virtual_machine(spec["template"])
    for each in dig(obj, "status", "revisions") or ():  # so that defaults of a later version make no new revision
        if isinstance(dig(each, "template", "spec"), dict):
            defaults.default_virtual_machine(each["template"])


def validate(obj: Object, allowed: Allowed = NOTHING) -> list[FieldError]:
    """Return errors in a new VirtualMachineReplicaSet with defaults."""
    found = size.validate(obj) + _validate_name(obj) + _validate_numbers(obj["spec"]) + _validate_selector(obj["spec"])
    return [*found, *claim_templates.validate(obj["spec"]), *rollouts.validate(obj["spec"]), *_validate_template(obj, allowed)]


def validate_update(obj: Object, old: Object, allowed: Allowed = NOTHING) -> list[FieldError]:
    """Return errors in an updated VirtualMachineReplicaSet, but not in an unchanged template."""
    found = size.validate(obj, old) + _validate_name(obj) + _validate_numbers(obj["spec"])
    if ordinals.has_ordinals(obj) != ordinals.has_ordinals(old):
        found.append(invalid(ORDINALS, obj["spec"].get("ordinals"), "field is immutable: machines keep their names"))
    found += [*claim_templates.validate_update(obj["spec"], old["spec"]), *rollouts.validate(obj["spec"])]
    if obj["spec"].get("selector") != old["spec"].get("selector"):
        found.append(invalid(SELECTOR, obj["spec"].get("selector"), "field is immutable"))
    if obj["spec"].get("template") != old["spec"].get("template"):
        found += _validate_selector(obj["spec"]) + _validate_template(obj, allowed)
    return found


def validate_status(obj: Object) -> list[FieldError]:
    """Return errors for counts out of range in a VirtualMachineReplicaSet's status."""
    status, path = obj.get("status") or {}, Path("status")
    counts = (field for field, value in status.items() if isinstance(value, int))
    return [each for field in counts for each in validate_between(status[field], 0, _LARGEST, path.child(field))]


def _validate_name(obj: Object) -> list[FieldError]:
    most = MAX_NAME
    if ordinals.has_ordinals(obj):
        if not 0 <= (last := ordinals.wanted(obj).stop - 1) <= _LARGEST + 1:
            return []  # _validate_numbers reports it
        most = validation.MAX_NAME - len(f"-{last}")
    name = dig_replica_set(obj, "metadata", "name") or ""
    return [too_long(Path("metadata").child("name"), most)] if len(name.encode()) > most else []


def _validate_numbers(spec: Object) -> list[FieldError]:
    fields = ("replicas", "minReadySeconds")
    given = [(SPEC.child(each), spec[each]) for each in fields if spec.get(each) is not None]
    if (start := dig(spec, "ordinals", "start")) is not None:
        given.append((ORDINALS.child("start"), start))
    found = [error for path, number in given for error in validate_between(number, 0, _LARGEST, path)]
    if start and not found and start + (spec.get("replicas") or 0) > _LARGEST:
        found.append(invalid(ORDINALS.child("start"), start, f"start and replicas together must not exceed {_LARGEST}"))
    return found


def _validate_selector(spec: Object) -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required(SELECTOR)]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid(SELECTOR, selector, "an empty selector is invalid, because it selects every machine of the namespace")]
    if found := validate_label_selector(selector, SELECTOR):
        return found
    given = dig(spec, "template", "metadata", "labels") or {}
    if labels.from_json(selector).matches(given):
        return []
    return [invalid(TEMPLATE.child("metadata", "labels"), given, "`selector` does not match template `labels`")]


def _validate_template(obj: Object, allowed: Allowed) -> list[FieldError]:
    template = obj["spec"].get("template") or {}
    if "spec" not in template:
        return []  # the schema reports it
    given = template.get("metadata") or {}
    found = objectmeta.validate_given({key: given[key] for key in ("labels", "annotations") if given.get(key)})
    values = placeholder_values(obj, _SAMPLE)
    spec = placeholders.expanded(template["spec"], values)
    machine = {"metadata": {"namespace": namespace_of(obj)}, "spec": spec}
    found += placeholders.validate(template["spec"], Path("spec"), list(values))
    found += validation.validate_virtual_machine(machine, allowed)
    return [replace(each, path=str(TEMPLATE.child(each.path))) for each in found] + list(_unique_values(template["spec"]))


def placeholder_values(obj: Object, end: str) -> dict[str, str]:
    """Return the values of placeholders for the machine with the name's end: an ordinal, or random characters."""
    name = f"{dig_replica_set(obj, 'metadata', 'name') or ''}-{end}"
    return {"name": name, "ordinal" if ordinals.has_ordinals(obj) else "suffix": end}


def _unique_values(spec: Object) -> Iterator[FieldError]:
    domain, path = spec.get("domain") or {}, TEMPLATE.child("spec", "domain")
    if dig(domain, "firmware", "uuid"):
        yield forbidden(path.child("firmware", "uuid"), _SHARED)
    for position, each in enumerate(interfaces.defaulted(domain)):
        if each.get("mac"):
            yield forbidden(path.child("devices", "interfaces").index(position).child("mac"), _SHARED)

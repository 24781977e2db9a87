"""Strategy of ``virtualmachinereplicasets``, with the verbs that give machines the template."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import errors, labels, names, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals, phases, power, revisions
from apiserver.apis.virt.lifecycle.replica_sets import REPLICATE, ROLLOUT
from apiserver.apis.virt.places.resources import REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.apis.virt.spec import live_changes, placeholders, running
from apiserver.apis.virt.v1alpha1 import kubevirt_fields, replica_set
from apiserver.apis.virt.v1alpha1.allowed import NOTHING, Allowed
from apiserver.registry.generic.scaling import Scaling
from apiserver.registry.generic.strategy import Column, CreatingVerb, Strategy, UpdatingVerb
from apiserver.registry.virt import verbs

_TEMPLATE: Final = "spec.template."


class Replicate(CreatingVerb):
    """A replica set's verb that creates a machine from the stored template; virt-controller only decides when."""

    creates = VIRTUAL_MACHINES

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return a machine from the set's template, controlled by the set. Raises BadRequest, Conflict.

        The body may have the set's ``preconditions.uid``. It must have the machine's ``ordinal`` exactly if the set has ordinals.
        """
        del now
        _check(obj, body, REPLICATE)
        end = _end_of_name(obj, body, REPLICATE)
        label, template = _revision(obj, end)
        given = template.get("metadata") or {}
        prefix = f"{objects.name_of(obj)}-"
        spec = placeholders.expanded(template["spec"], replica_set.placeholder_values(obj, end))
        is_free = not ordinals.has_ordinals(obj) and spec == template["spec"]
        made_labels = {**(given.get("labels") or {}), **label}
        return {
            "apiVersion": VIRTUAL_MACHINES.api_version,
            "kind": VIRTUAL_MACHINES.kind,
            "metadata": {
                # Without placeholders, the store tries further names if one is taken.
                **({"generateName": prefix} if is_free else {"name": f"{prefix}{end}"}),
                "namespace": objects.namespace_of(obj),
                **({"labels": made_labels} if made_labels else {}),
                **({"annotations": given["annotations"]} if given.get("annotations") else {}),
                "ownerReferences": [objects.owner_reference(obj, REPLICA_SETS, block_owner_deletion=True)],
            },
            "spec": spec,
        }


class Rollout(UpdatingVerb):
    """Gives a machine the stored template, and restarts a guest that does not take it live; virt-controller only decides when.

    The body has the machine's ``ordinal``, and may have the set's ``preconditions.uid``.
    """

    updates = VIRTUAL_MACHINES

    def target(self, obj: Object, body: Object) -> str:
        """Return the name of the machine to change.

        Raises BadRequest for a wrong body or without ordinals; Conflict if the set takes no rollout now, or lacks the ordinal.
        """
        _check(obj, body, ROLLOUT)
        if not ordinals.has_ordinals(obj):
            raise errors.BadRequest(f"{ROLLOUT} requires a set with spec.ordinals")
        if dig_replica_set(obj, "spec", "paused") or revisions.strategy_of(obj) != revisions.ROLLING_UPDATE:
            raise errors.Conflict(f'{REPLICA_SETS.kind} "{objects.name_of(obj)}" is paused, or its updateStrategy is not RollingUpdate')
        return f"{objects.name_of(obj)}-{_end_of_name(obj, body, ROLLOUT)}"

    def change(self, obj: Object, found: Object, body: Object, now: datetime) -> Object:
        """Return the machine ``found`` with the set's template for ordinal ``body["ordinal"]``; if needed, with a request to restart.

        ``obj`` is the set. Raises Conflict if it does not control the machine, or that is being deleted.
        """
        if objects.is_deleting(found) or (objects.controller_of(found) or {}).get("uid") != objects.uid_of(obj):
            raise verbs.conflict(found, f"{REPLICA_SETS.kind} {objects.name_of(obj)} does not control it, or it is being deleted")
        end = str(body["ordinal"])
        label, template = _revision(obj, end)
        spec = placeholders.expanded(template["spec"], replica_set.placeholder_values(obj, end))
        changed = {**found, "metadata": _metadata(obj, found, template, label), "spec": spec}
        running.note_edit(changed, found, has_guest=phases.keeps_guest(found))
        if (_asks_to_restart(template, found) or live_changes.rest(changed)) and verbs.refuse_restart(changed) is None:
            # An edited run strategy supersedes requests of earlier generations.
            generation = objects.generation_of(found) + int(spec != found["spec"])
            verbs.request(changed, power.RESTART, now, {"generation": generation})
        return changed


def _metadata(obj: Object, found: Object, template: Object, label: dict[str, str]) -> Object:
    """Return the metadata of machine ``found`` with the labels and annotations of ``template``, and ``label``.

    Those from its earlier template go, unless someone changed their value.
    """
    earlier = revisions.template_of(obj, objects.labels_of(found).get(revisions.LABEL, "")).get("metadata") or {}
    given = template.get("metadata") or {}
    metadata = dict(found["metadata"])
    for field, added in (("labels", label), ("annotations", {})):
        before, wanted = earlier.get(field) or {}, {**(given.get(field) or {}), **added}
        kept = {key: value for key, value in (metadata.pop(field, None) or {}).items() if before.get(key) != value}
        if both := {**kept, **wanted}:
            metadata[field] = both
    return metadata


def _asks_to_restart(template: Object, found: Object) -> bool:
    asked = objects.dig(template, "metadata", "annotations", revisions.RESTARTED_AT)
    return asked is not None and asked != objects.annotations_of(found).get(revisions.RESTARTED_AT)


def _check(obj: Object, body: Object, verb: str) -> None:
    """Raise BadRequest for an unknown field of the body; Conflict if the set is being deleted, or not that of the precondition."""
    name, uid = objects.name_of(obj), objects.dig(body, "preconditions", "uid")
    if unknown := sorted(body.keys() - {"preconditions", "ordinal", "kind", "apiVersion"}):
        raise errors.BadRequest(f"{verb} takes no field {unknown[0][:64]!r}: a machine is what the template says")
    if objects.is_deleting(obj):
        raise errors.Conflict(f'{REPLICA_SETS.kind} "{name}" is being deleted, and changes no machines')
    if uid is not None and uid != objects.uid_of(obj):
        raise errors.Conflict(f'{REPLICA_SETS.kind} "{name}" is another one than that of the precondition')


def _revision(obj: Object, end: str) -> tuple[dict[str, str], Object]:
    """Return the revision, as a label (none without ordinals), and the template of the machine with this end of its name."""
    if not ordinals.has_ordinals(obj):
        return {}, obj["spec"]["template"]
    name, template = revisions.for_ordinal(obj, int(end))
    return {revisions.LABEL: name}, dict(template)


def _end_of_name(obj: Object, body: Object, verb: str) -> str:
    """Return the ordinal in the body, else random characters. Raises BadRequest, or Conflict if the set does not want the ordinal."""
    ordinal = body.get("ordinal")
    if not ordinals.has_ordinals(obj):
        if ordinal is not None:
            raise errors.BadRequest(f"{verb} takes an ordinal only for a set with spec.ordinals")
        return names.generate("")
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise errors.BadRequest(f"{verb} requires an ordinal, because the set has spec.ordinals")
    if ordinal not in (wanted := ordinals.wanted(obj)):
        raise errors.Conflict(
            f'{REPLICA_SETS.kind} "{objects.name_of(obj)}" has {len(wanted)} replicas from {wanted.start} on, without {ordinal}'
        )
    return str(ordinal)


def _warnings_of_template(obj: Object, old: Object) -> Iterator[str]:
    changed = obj["spec"].get("template") != old["spec"].get("template") and objects.dig(old, "status", "replicas")
    if changed and not (ordinals.has_ordinals(obj) and revisions.strategy_of(obj) == revisions.ROLLING_UPDATE):
        yield "spec.template: existing machines stay as they are; the set replaces each one that you delete by one of the new template"


def _warnings_of_claims(obj: Object, old: Object) -> Iterator[str]:
    before, after = (ordinals.retention(each, ordinals.WHEN_SCALED) for each in (old, obj))
    if (before, after) == (ordinals.RETAIN, ordinals.DELETE):
        yield "spec.persistentVolumeClaimRetentionPolicy.whenScaled: the set also deletes claims that it kept when it became smaller"


def selector_of(obj: Object) -> str:
    """Return the set's selector as text; empty if unreadable."""
    selector = dig_replica_set(obj, "spec", "selector")
    return str(labels.from_json(selector)) if isinstance(selector, dict) else ""


class ReplicaSetStrategy(Strategy):
    """Rules of VirtualMachineReplicaSet, with ``/scale`` and the verbs of this module."""

    resource = REPLICA_SETS
    singular = "virtualmachinereplicaset"
    short_names = ("vmrs",)
    categories = ("all",)
    model = replica_set.VirtualMachineReplicaSet
    scaling = Scaling(selector_of)
    verbs = {REPLICATE: Replicate(), ROLLOUT: Rollout()}  # noqa: RUF012 - read-only in the base class

    def __init__(self, allowed: Allowed = NOTHING) -> None:
        self._allowed = allowed

    def hint(self, field: str, value: object = None) -> str:
        """Return a hint at our name for KubeVirt's in the template."""
        return kubevirt_fields.hint(field.removeprefix(_TEMPLATE), value) if field.startswith(_TEMPLATE) else ""

    def default(self, obj: Object) -> None:
        """Set defaults in the spec and the template."""
        replica_set.default(obj)

    def prepare_for_create(self, obj: Object) -> None:
        """Record the template's revision, and set ``status.observedGeneration`` to 0.

        Helm 4 and Flux (kstatus) take a set without a status for finished.
        """
        obj["status"] = {"observedGeneration": 0}
        revisions.record(obj)

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Record the template's revision."""
        del old
        revisions.record(obj)

    def prepare_for_status_update(self, obj: Object, old: Object) -> None:
        """Keep the revisions, which only virt-api writes."""
        if (kept := revisions.of_set(old)) or revisions.of_set(obj):
            obj.setdefault("status", {})["revisions"] = kept

    def validate(self, obj: Object) -> list[FieldError]:
        """Return a new set's errors."""
        return replica_set.validate(obj, self._allowed)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return an updated set's errors: the selector is immutable, an unchanged template is not checked."""
        return replica_set.validate_update(obj, old, self._allowed)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return a status' errors."""
        del old
        return replica_set.validate_status(obj)

    def warnings_on_update(self, obj: Object, old: Object) -> tuple[str, ...]:
        """Return warnings: the set updates no existing machine to the changed template, or it now deletes claims that it kept."""
        return (*_warnings_of_template(obj, old), *_warnings_of_claims(obj, old))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns."""
        return (
            Column("Desired", "integer", description="Number of machines that there should be."),
            Column("Current", "integer", description="Number of machines that exist."),
            Column("Ready", "integer", description="Number of machines that are ready."),
            Column("Available", "integer", description="Number of machines that are ready for minReadySeconds.", priority=1),
            Column("Selector", description="The labels of the set's machines.", priority=1),
        )

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return one value per column."""
        del now
        status = obj.get("status") or {}
        counts = [status.get(field) or 0 for field in ("replicas", "readyReplicas", "availableReplicas")]
        return [dig_replica_set(obj, "spec", "replicas"), *counts, selector_of(obj)]

"""OpenAPI v3 schemas of apimachinery's common types, with our own texts."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

PREFIX: Final = "io.kubevirt.apimachinery.meta.v1."
REF: Final = "#/components/schemas/"


def ref(name: str) -> Schema:
    """Return a schema that refers to a type in :data:`TYPES`."""
    return {"$ref": f"{REF}{PREFIX}{name}"}


def _of(name: str, description: str) -> Schema:
    return {"allOf": [ref(name)], "description": description}


def _string(description: str, **more: str) -> Schema:
    return {"type": "string", "description": description, **more}


def _time(description: str) -> Schema:
    return _string(description, format="date-time")


def _int(description: str, bits: int = 64) -> Schema:
    return {"type": "integer", "format": f"int{bits}", "description": description}


def _bool(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _strings(description: str, **extensions: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description, **{_extension(k): v for k, v in extensions.items()}}


def _map(description: str) -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def _extension(name: str) -> str:
    return "x-kubernetes-" + name.replace("_", "-")


def _object(description: str, properties: dict[str, Schema], required: tuple[str, ...] = (), **extensions: str) -> Schema:
    schema: Schema = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, **{_extension(key): value for key, value in extensions.items()}}


_API_VERSION: Final = _string("The group and version of this representation.")
_KIND: Final = _string("What this object is, in CamelCase.")

TYPES: Final[dict[str, Schema]] = {
    "ObjectMeta": _object(
        "What every object has: a name, labels, owners.",
        {
            "name": _string("Unique in the namespace among objects of this kind; cannot be changed."),
            "generateName": _string("The beginning of a name; the server adds five characters. Used when there is no name."),
            "namespace": _string("The namespace that the object is in; cannot be changed."),
            "uid": _string("Unique in space and time; set by the server."),
            "resourceVersion": _string("The state that this representation shows; given back, it guards a write against older knowledge."),
            "generation": _int("Counts changes of what is wanted; set by the server."),
            "creationTimestamp": _time("When it was created; set by the server."),
            "deletionTimestamp": _time("When its deletion was asked for; it goes when the finalizers are gone. Set by the server."),
            "deletionGracePeriodSeconds": _int("How long the deletion may take; set by the server."),
            "selfLink": _string("Not used any more."),
            "labels": _map("Keys and values to select objects by."),
            "annotations": _map("Keys and values for tools and people; nothing selects by them."),
            "ownerReferences": {
                "type": "array",
                "items": {"allOf": [ref("OwnerReference")]},
                "description": "The objects that this one depends on; when all of them are gone, it is collected.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
            },
            "finalizers": _strings("Who has to agree before the object goes.", list_type="set", patch_strategy="merge"),
            "managedFields": {
                "type": "array",
                "items": {"allOf": [ref("ManagedFieldsEntry")]},
                "description": "Who manages which fields.",
                "x-kubernetes-list-type": "atomic",
            },
        },
    ),
    "OwnerReference": _object(
        "An object that another one depends on, in the same namespace or cluster-wide.",
        {
            "apiVersion": _string("The owner's group and version."),
            "kind": _string("The owner's kind."),
            "name": _string("The owner's name."),
            "uid": _string("The owner's uid."),
            "controller": _bool("Whether this owner is the one that manages the object."),
            "blockOwnerDeletion": _bool("Whether the owner, deleted in the foreground, waits for this object to go."),
        },
        ("apiVersion", "kind", "name", "uid"),
        map_type="atomic",
    ),
    "ManagedFieldsEntry": _object(
        "The fields that one manager set.",
        {
            "manager": _string("Who."),
            "operation": _string("How: Apply or Update."),
            "apiVersion": _string("In which version the fields are named."),
            "time": _time("When this entry last changed."),
            "fieldsType": _string("FieldsV1."),
            "fieldsV1": _of("FieldsV1", "The fields."),
            "subresource": _string("Through which subresource they were set."),
        },
    ),
    "FieldsV1": {"type": "object", "description": "A set of fields: f:<name>, k:<keys>, v:<value>, i:<index>, and . for the place itself."},
    "ListMeta": _object(
        "What every list has.",
        {
            "resourceVersion": _string("The state that the list shows; a watch can begin there."),
            "continue": _string("A token for the next page; absent on the last one."),
            "remainingItemCount": _int("How many items the further pages have, if that is known."),
            "selfLink": _string("Not used any more."),
        },
    ),
    "Status": _object(
        "The answer when there is no object to answer with.",
        {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": _of("ListMeta", "Seldom used; the token to go on with after a list expired."),
            "status": _string("Success or Failure."),
            "message": _string("What happened, for people."),
            "reason": _string("What happened, in one CamelCase word."),
            "details": _of("StatusDetails", "What it happened to, and why."),
            "code": _int("The HTTP code.", 32),
        },
    ),
    "StatusDetails": _object(
        "What a Status is about.",
        {
            "name": _string("The object's name."),
            "group": _string("The resource's group."),
            "kind": _string("The resource, or the kind."),
            "uid": _string("The object's uid."),
            "causes": {
                "type": "array",
                "items": {"allOf": [ref("StatusCause")]},
                "description": "Each single thing that is wrong.",
                "x-kubernetes-list-type": "atomic",
            },
            "retryAfterSeconds": _int("When it is worth to try again.", 32),
        },
    ),
    "StatusCause": _object(
        "One thing that is wrong.",
        {
            "reason": _string("What, in one CamelCase word."),
            "message": _string("What, for people."),
            "field": _string("Where, as a path such as spec.domain.devices.disks[0].name."),
        },
    ),
    "DeleteOptions": _object(
        "How to delete.",
        {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "gracePeriodSeconds": _int("Accepted; the object's own grace period counts."),
            "preconditions": _of("Preconditions", "What has to hold for the deletion to happen."),
            "orphanDependents": _bool("Deprecated: use propagationPolicy."),
            "propagationPolicy": _string("What becomes of dependents: Orphan, Background or Foreground."),
            "dryRun": _strings("All: go all the way but do not write.", list_type="atomic"),
            "ignoreStoreReadErrorWithClusterBreakingPotential": _bool(
                "Delete the object even if it cannot be decoded, whatever its finalizers."
            ),
        },
    ),
    "Preconditions": _object(
        "What has to hold for an operation to happen.",
        {"uid": _string("The object has this uid."), "resourceVersion": _string("The object is in this state.")},
    ),
    "Scale": {
        **_object(
            "The replicas of an object, whatever it looks like.",
            {
                "apiVersion": _API_VERSION,
                "kind": _KIND,
                "metadata": _of("ObjectMeta", "The scaled object's."),
                "spec": _object("What is asked for.", {"replicas": _int("How many there shall be.", 32)}),
                "status": _object(
                    "What there is.",
                    {"replicas": _int("How many there are.", 32), "selector": _string("The label selector of what is scaled.")},
                    ("replicas",),
                ),
            },
        ),
        "x-kubernetes-group-version-kind": [{"group": "autoscaling", "version": "v1", "kind": "Scale"}],
    },
    "Patch": {"type": "object", "description": "A change; its content type says of which kind."},
    "Quantity": {
        "description": "An amount: a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    "APIResourceList": _object(
        "The resources of one group version.",
        {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "groupVersion": _string("The group version."),
            "resources": {
                "type": "array",
                "items": {"allOf": [ref("APIResource")]},
                "description": "The resources and subresources.",
                "x-kubernetes-list-type": "atomic",
            },
        },
        ("groupVersion", "resources"),
    ),
    "APIResource": _object(
        "One resource or subresource.",
        {
            "name": _string("The plural name."),
            "singularName": _string("The singular name."),
            "namespaced": _bool("Whether its objects are in namespaces."),
            "group": _string("The group of its kind, if another one."),
            "version": _string("The version of its kind, if another one."),
            "kind": _KIND,
            "verbs": _strings("What can be done with it."),
            "shortNames": _strings("Short names.", list_type="atomic"),
            "categories": _strings("Groups of resources that it belongs to, such as all.", list_type="atomic"),
            "storageVersionHash": _string("Changes when the stored version does."),
        },
        ("name", "singularName", "namespaced", "kind", "verbs"),
    ),
}

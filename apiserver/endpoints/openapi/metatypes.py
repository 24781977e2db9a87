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
_KIND: Final = _string("The kind of this object, in CamelCase.")

TYPES: Final[dict[str, Schema]] = {
    "ObjectMeta": _object(
        "Metadata of an object, such as its name, labels and owners.",
        {
            "name": _string("Unique in the namespace among objects of this kind; cannot be changed."),
            "generateName": _string("Prefix for a generated name; the server adds five characters. Used if name is empty."),
            "namespace": _string("The namespace that the object is in; cannot be changed."),
            "uid": _string("Unique in space and time; set by the server."),
            "resourceVersion": _string("The version of this object. A write that contains it fails if the object has changed since."),
            "generation": _int("Number of changes of the spec; set by the server."),
            "creationTimestamp": _time("When it was created; set by the server."),
            "deletionTimestamp": _time("Time of the delete request; the object disappears when it has no finalizers. Set by the server."),
            "deletionGracePeriodSeconds": _int("How long the deletion may take; set by the server."),
            "selfLink": _string("Deprecated and unset."),
            "labels": _map("Keys and values for selecting objects."),
            "annotations": _map("Keys and values for tools and people; not used for selection."),
            "ownerReferences": {
                "type": "array",
                "items": {"allOf": [ref("OwnerReference")]},
                "description": "Owners of this object; the garbage collector deletes it when all of them are deleted.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
            },
            "finalizers": _strings(
                "Identifiers of components that must act before the object is deleted.", list_type="set", patch_strategy="merge"
            ),
            "managedFields": {
                "type": "array",
                "items": {"allOf": [ref("ManagedFieldsEntry")]},
                "description": "Fields and their managers.",
                "x-kubernetes-list-type": "atomic",
            },
        },
    ),
    "OwnerReference": _object(
        "An owner of an object, in the same namespace or cluster-scoped.",
        {
            "apiVersion": _string("The owner's group and version."),
            "kind": _string("The owner's kind."),
            "name": _string("The owner's name."),
            "uid": _string("The owner's uid."),
            "controller": _bool("True for the owner that manages the object."),
            "blockOwnerDeletion": _bool("True if a foreground deletion of the owner waits until this object is deleted."),
        },
        ("apiVersion", "kind", "name", "uid"),
        map_type="atomic",
    ),
    "ManagedFieldsEntry": _object(
        "The fields that one manager set.",
        {
            "manager": _string("The manager."),
            "operation": _string("Kind of the write: Apply or Update."),
            "apiVersion": _string("The API version of the field names."),
            "time": _time("Time of the last change of this entry."),
            "fieldsType": _string("FieldsV1."),
            "fieldsV1": _of("FieldsV1", "The fields."),
            "subresource": _string("The subresource of the write, if any."),
        },
    ),
    "FieldsV1": {
        "type": "object",
        "description": "A set of fields: f:<name>, k:<keys>, v:<value>, i:<index>, and . for the element itself.",
    },
    "ListMeta": _object(
        "Metadata of a list.",
        {
            "resourceVersion": _string("The version of the list, where a watch can start."),
            "continue": _string("A token for the next page; absent on the last one."),
            "remainingItemCount": _int("Number of items on further pages, if known."),
            "selfLink": _string("Deprecated and unset."),
        },
    ),
    "Status": _object(
        "The result of a request that returns no other object.",
        {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": _of("ListMeta", "Metadata; after an expired list, a token to continue."),
            "status": _string("Success or Failure."),
            "message": _string("The result, for people."),
            "reason": _string("The reason, in one CamelCase word."),
            "details": _of("StatusDetails", "The object and the causes."),
            "code": _int("The HTTP code.", 32),
        },
    ),
    "StatusDetails": _object(
        "Details of a Status.",
        {
            "name": _string("The object's name."),
            "group": _string("The resource's group."),
            "kind": _string("The resource, or the kind."),
            "uid": _string("The object's uid."),
            "causes": {
                "type": "array",
                "items": {"allOf": [ref("StatusCause")]},
                "description": "The errors.",
                "x-kubernetes-list-type": "atomic",
            },
            "retryAfterSeconds": _int("Seconds to wait before a retry.", 32),
        },
    ),
    "StatusCause": _object(
        "One error.",
        {
            "reason": _string("The reason, in one CamelCase word."),
            "message": _string("The error, for people."),
            "field": _string("The field, as a path such as spec.domain.devices.disks[0].name."),
        },
    ),
    "DeleteOptions": _object(
        "Options of a delete request.",
        {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "gracePeriodSeconds": _int("Accepted; the object's own grace period counts."),
            "preconditions": _of("Preconditions", "Conditions for the deletion."),
            "orphanDependents": _bool("Deprecated: use propagationPolicy."),
            "propagationPolicy": _string("Deletion of dependents: Orphan, Background or Foreground."),
            "dryRun": _strings("All: process the request without writing.", list_type="atomic"),
            "ignoreStoreReadErrorWithClusterBreakingPotential": _bool(
                "Delete the object even if it cannot be decoded, whatever its finalizers."
            ),
        },
    ),
    "Preconditions": _object(
        "Conditions for an operation.",
        {"uid": _string("The object must have this uid."), "resourceVersion": _string("The object must have this resourceVersion.")},
    ),
    "Scale": {
        **_object(
            "The number of replicas of any scalable object.",
            {
                "apiVersion": _API_VERSION,
                "kind": _KIND,
                "metadata": _of("ObjectMeta", "The scaled object's."),
                "spec": _object("The desired state.", {"replicas": _int("Desired number.", 32)}),
                "status": _object(
                    "The actual state.",
                    {"replicas": _int("Actual number.", 32), "selector": _string("Label selector of the replicas.")},
                    ("replicas",),
                ),
            },
        ),
        "x-kubernetes-group-version-kind": [{"group": "autoscaling", "version": "v1", "kind": "Scale"}],
    },
    "Patch": {"type": "object", "description": "A patch in the format of its content type."},
    "Quantity": {
        "description": "An amount: a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    "IntOrString": {
        "description": "An integer, or text such as 25%.",
        "format": "int-or-string",
        "oneOf": [{"type": "string"}, {"type": "integer"}],
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
            "verbs": _strings("Supported verbs."),
            "shortNames": _strings("Short names.", list_type="atomic"),
            "categories": _strings("Groups of resources that it belongs to, such as all.", list_type="atomic"),
            "storageVersionHash": _string("Changes when the stored version does."),
        },
        ("name", "singularName", "namespaced", "kind", "verbs"),
    ),
}

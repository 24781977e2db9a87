"""``AdmissionReview``: encode the request, and validate the answer (``pkg/admission/plugin/webhook/request``)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from apiserver.admission.versions import Versions
from apiserver.apis.meta.objects import HubObject, Json, Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes

GROUP: Final = "admission.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
JSON_PATCH: Final = "JSONPatch"
_MAX_CODE: Final = 1 << 31


class WrongAnswer(Exception):
    """The webhook's answer is an invalid ``AdmissionReview``; the message says why."""


@dataclass(frozen=True, slots=True)
class VersionedAttributes:
    """The request in the version of a webhook or a policy."""

    attributes: Attributes
    resource: Resource
    obj: Object | None
    old: Object | None

    @classmethod
    def of(cls, attributes: Attributes, wanted: Resource, versions: Versions) -> VersionedAttributes:
        """Convert the request's objects to ``wanted``; other kinds, such as ``Scale``, stay."""
        obj, old = (
            versions.shown(each, wanted) if each and each.get("kind") == wanted.kind else each for each in (attributes.obj, attributes.old)
        )
        return cls(attributes, wanted, obj, old)

    def taken(self, made: Object, versions: Versions) -> HubObject:
        """Convert a changed object to the stored version by ``versions.taken``; other kinds, such as ``Scale``, stay."""
        return versions.taken(made, self.resource) if made.get("kind") == self.resource.kind else HubObject(made)

    @property
    def kind(self) -> tuple[str, str, str]:
        """Group, version and kind of the object that the webhook gets (``autoscaling/v1 Scale``); without one, of the resource."""
        return _kind_of(self.obj or self.old, self.resource)

    @property
    def request_kind(self) -> tuple[str, str, str]:
        """Group, version and kind of the object as requested, before conversion."""
        requested = self.attributes.resource
        group, version, kind = _kind_of(self.attributes.obj or self.attributes.old, requested)
        return (group, requested.version if (group, kind) == (requested.group, requested.kind) else version, kind)


@dataclass(frozen=True, slots=True)
class Answer:
    """A webhook's answer."""

    allowed: bool
    result: Object | None = None
    patch: bytes = b""
    patch_type: str = ""
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def _kind_of(obj: Object | None, resource: Resource) -> tuple[str, str, str]:
    version, kind = (obj.get("apiVersion"), obj.get("kind")) if obj else (None, None)
    if not isinstance(version, str) or not isinstance(kind, str) or not version or not kind:
        return resource.group, resource.version, resource.kind
    group, _, short = version.rpartition("/")
    return group, short, kind


def version(accepted: Sequence[str]) -> str | None:
    """Return the first of ``accepted`` review versions that we support, or None."""
    return next((each for each in accepted if each in VERSIONS), None)


def question(uid: str, versioned: VersionedAttributes, speaks: str) -> bytes:
    """Return the request as encoded ``AdmissionReview`` of version ``speaks``."""
    given = versioned.attributes
    requested = given.resource
    request: Object = {"uid": uid, "kind": _kind(versioned.kind), "resource": _resource(versioned.resource)}
    if given.subresource:
        request["subResource"] = given.subresource
    request |= {"requestKind": _kind(versioned.request_kind), "requestResource": _resource(requested)}
    if given.subresource:
        request["requestSubResource"] = given.subresource
    if given.name:
        request["name"] = given.name
    if given.namespace:
        request["namespace"] = given.namespace
    request |= {
        "operation": given.operation,
        "userInfo": _user(given),
        "object": versioned.obj,
        "oldObject": versioned.old,
        "dryRun": given.dry_run,
        "options": given.options or None,
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{speaks}", "request": request})


def _kind(kind: tuple[str, str, str]) -> Object:
    return {"group": kind[0], "version": kind[1], "kind": kind[2]}


def _resource(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _user(given: Attributes) -> Object:
    user = given.user
    info: Object = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {k: list(v) for k, v in user.extra.items()},
    }
    return {key: value for key, value in info.items() if value}


def answer(raw: bytes, uid: str, speaks: str, *, mutating: bool) -> Answer:
    """Parse a webhook's answer in version ``speaks``; ``mutating``: it may have a patch.

    Raises WrongAnswer, in v1 also for another ``uid`` than the request's.
    """
    try:
        body = orjson.loads(raw)
    except ValueError:
        raise WrongAnswer("the response is not valid JSON") from None
    given = body.get("response") if isinstance(body, dict) else None
    if not isinstance(given, dict):
        raise WrongAnswer("webhook response was absent")
    if speaks == "v1":
        _is_ours(body, given, uid)
    patch, patch_type = _patch(given, strict=speaks == "v1", mutating=mutating)
    return Answer(
        allowed=_typed(given, "allowed", bool, default=False),
        result=_result(given),
        patch=patch,
        patch_type=patch_type,
        warnings=tuple(_strings(given.get("warnings") or [], "warnings")),
        annotations=_annotations(given.get("auditAnnotations") or {}),
    )


def _is_ours(body: Object, given: Object, uid: str) -> None:
    if given.get("uid") != uid:
        raise WrongAnswer(f'expected response.uid="{uid}", got "{str(given.get("uid") or "")[:64]}"')
    said = (str(body.get("apiVersion") or ""), str(body.get("kind") or ""))
    if said != (f"{GROUP}/v1", "AdmissionReview"):
        named = f"{said[0][:64] or '/'}, Kind={said[1][:64]}"
        raise WrongAnswer(f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {named}")


def _patch(given: Object, *, strict: bool, mutating: bool) -> tuple[bytes, str]:
    try:
        patch = base64.b64decode(_typed(given, "patch", str, default=""), validate=True)
    except (binascii.Error, ValueError):
        raise WrongAnswer("response.patch is not valid base64") from None
    type_ = given.get("patchType")
    if not strict:
        return (patch, JSON_PATCH) if mutating and patch else (b"", "")
    if not mutating:
        if patch:
            raise WrongAnswer("validating webhook may not return response.patch")
        if type_ is not None:
            raise WrongAnswer("validating webhook may not return response.patchType")
        return b"", ""
    if patch and type_ is None:
        raise WrongAnswer("webhook returned response.patch but not response.patchType")
    if not patch and type_ is not None:
        raise WrongAnswer("webhook returned response.patchType but not response.patch")
    if type_ is not None and (not isinstance(type_, str) or not type_):
        raise WrongAnswer(f'webhook returned invalid response.patchType of "{str(type_)[:64]}"')
    return patch, type_ or ""


def _result(given: Object) -> Object | None:
    status = given.get("status")
    if status is None:
        return None
    if not isinstance(status, dict):
        raise WrongAnswer("response.status is not an object")
    for name in ("message", "reason", "status"):
        _typed(status, name, str, default="")
    if not -_MAX_CODE <= _typed(status, "code", int, default=0) < _MAX_CODE:
        raise WrongAnswer("response.status.code is not a valid integer")
    details = _typed(status, "details", dict, default={})
    for name in ("name", "group", "kind", "uid"):
        _typed(details, name, str, default="")
    if not -_MAX_CODE <= _typed(details, "retryAfterSeconds", int, default=0) < _MAX_CODE:
        raise WrongAnswer("response.status.details.retryAfterSeconds is not a valid integer")
    for each in _typed(details, "causes", list, default=[]):
        if not isinstance(each, dict) or not all(isinstance(value, str) for value in each.values()):
            raise WrongAnswer("response.status.details.causes must be objects with strings")
    return status


def _typed(given: Mapping[str, Json], name: str, type_: type, *, default: Json) -> Json:
    value = given.get(name)
    if value is None:
        return default
    if type(value) is not type_:
        raise WrongAnswer(f"{name} in the response must be of type {type_.__name__}")
    return value


def _strings(values: Json, name: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise WrongAnswer(f"response.{name} must be a list of strings")
    return values


def _annotations(values: Json) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise WrongAnswer("response.auditAnnotations must be strings by name")
    return values

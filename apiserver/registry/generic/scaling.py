"""The ``scale`` subresource: any object's replicas as ``autoscaling/v1`` ``Scale``.

Source: ``k8s.io/api/autoscaling/v1``, and ``ScaleREST`` of ``k8s.io/apiextensions-apiserver`` for replicas at a path.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.objects import HubObject, Object, dig
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import Path, invalid, raise_if_any, required, type_invalid

SCALE: Final = Resource("autoscaling", "v1", "scales", "Scale")
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_LARGEST: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Scaling:
    """Paths of a kind's replicas, in the stored version."""

    selector: Callable[[Object], str]
    """Returns a label selector, for autoscalers."""
    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")

    def view(self, obj: HubObject) -> Object:
        """Return the object's ``Scale``."""
        given = obj["metadata"]
        return {
            "kind": SCALE.kind,
            "apiVersion": SCALE.api_version,
            "metadata": {key: given[key] for key in _METADATA if key in given},
            "spec": {"replicas": dig(obj, *self.spec_replicas) or 0},
            "status": {"replicas": dig(obj, *self.status_replicas) or 0, "selector": self.selector(obj)},
        }

    def put_back(self, obj: HubObject, scale: Object) -> HubObject:
        """Set the replicas of ``scale`` (0 if absent), and its ``resourceVersion`` and ``uid`` if any, in ``obj``; return it.

        Raises BadRequest for another object's ``scale``, Invalid.
        """
        given = scale.get("metadata")
        _match(scale, given, obj)
        found = []
        spec: Any = scale.get("spec")
        replicas: Any = 0
        if isinstance(spec, dict):
            replicas = 0 if spec.get("replicas") is None else spec["replicas"]
        elif spec is not None:
            found.append(type_invalid(Path("spec"), spec, "must be an object"))
        if type(replicas) is not int:
            found.append(type_invalid(Path("spec.replicas"), replicas, "must be an integer"))
        elif not 0 <= replicas <= _LARGEST:
            found.append(invalid(Path("spec.replicas"), replicas, "must be greater than or equal to 0"))
        if not isinstance(given, dict) or not given.get("name"):
            found.append(required(Path("metadata.name"), "name or generateName is required"))
        raise_if_any(found, group=SCALE.group, kind=SCALE.kind, name=obj["metadata"]["name"])
        parent: Object = obj
        for key in self.spec_replicas[:-1]:
            parent = parent.setdefault(key, {})
        parent[self.spec_replicas[-1]] = replicas
        for key in ("resourceVersion", "uid"):
            if isinstance(given, dict) and given.get(key):
                obj["metadata"][key] = given[key]
        return obj

    def applied(self, obj: HubObject, scale: Object, from_hub: Callable[[HubObject], Object]) -> Object:
        """Return an object with only the replicas of an applied ``scale``, in the version of ``from_hub``; changes ``obj``.

        Raises as :meth:`put_back`.
        """
        wanted = self.put_back(deepcopy(obj), scale)
        others = {**scale, "spec": {"replicas": 0 if dig(wanted, *self.spec_replicas) else 1}}  # another number, so the two differ
        return _difference(from_hub(wanted), from_hub(self.put_back(obj, others)))


def _difference(obj: Object, other: Object) -> Object:
    found: Object = {}
    for key, value in obj.items():
        if value != (there := other.get(key)):
            found[key] = _difference(value, there) if isinstance(value, dict) and isinstance(there, dict) else value
    return found


def _match(scale: Object, given: Any, obj: Object) -> None:  # noqa: ANN401 - a client's metadata
    if (scale.get("apiVersion"), scale.get("kind")) != (SCALE.api_version, SCALE.kind):
        got = f"{str(scale.get('apiVersion'))[:64]}, Kind={str(scale.get('kind'))[:64]}"
        raise BadRequest(f"the object is {got}, expected {SCALE.api_version}, Kind={SCALE.kind}")
    if not isinstance(given, dict):
        return
    name, own = given.get("name"), obj["metadata"]
    if name and name != own["name"]:
        raise BadRequest(f"the name of the object ({str(name)[:256]}) does not match the name on the URL ({own['name']})")
    if given.get("namespace") and given["namespace"] != own.get("namespace"):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")

"""The part of plugin requests that describes the machine and its pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.meta import objects
from apiserver.apis.virt.places import layout


def common(vm: Mapping[str, Any], pod_uid: str) -> dict[str, Any]:
    """Return the part of a plugin request about the machine, its pod and the pod's user."""
    machine = {"namespace": objects.namespace_of(vm), "name": objects.name_of(vm), "uid": objects.uid_of(vm)}
    return {"machine": machine, "pod": {"namespace": machine["namespace"], "uid": pod_uid}, "user": layout.USER_ID}

"""virt-api's PodRestriction for the fake API server."""

from __future__ import annotations

from collections.abc import Callable

from apiserver.apis.meta.errors import Forbidden
from apiserver.apis.meta.objects import dig, namespace_of
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.rights import pod_rights
from tests.fakes.kubeapi import FakeAPI, Object

_PODS = "/api/v1/pods"
_MACHINES, _MIGRATIONS = (f"/apis/{each.api_version}/{each.plural}" for each in (VIRTUAL_MACHINES, MIGRATIONS))
_FIELDS = {_MACHINES: ("podName", "podUID"), _MIGRATIONS: ("targetPod", "targetPodUID")}


def judge(api: FakeAPI) -> Callable[[str, str, Object, Object], None]:

    def judged(_token: str, collection: str, old: Object, new: Object) -> None:
        if collection not in _FIELDS:
            return
        name, uid = (str(dig(new, "status", each) or "") for each in _FIELDS[collection])
        addresses = dig(new, "status", "targetPodIPs") or []
        if addresses and addresses != dig(old, "status", "targetPodIPs"):
            found = pod_rights.strange_addresses(api.objects.get((_PODS, namespace_of(new), name)), uid, addresses)
            if found:
                raise Forbidden(f"is forbidden: {found}")
        if not uid or uid == dig(old, "status", _FIELDS[collection][1]):
            return
        namespace = namespace_of(new)
        machine = new if collection == _MACHINES else api.get(_MACHINES, namespace, dig(new, "spec", "selector", "name"))
        if found := pod_rights.objections(machine, api.objects.get((_PODS, namespace, name)), name, uid):
            raise Forbidden(f"is forbidden: {found}")

    return judged

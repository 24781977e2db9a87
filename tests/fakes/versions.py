from __future__ import annotations

from collections.abc import Sequence

from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource


class OneVersion:
    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        return (resource,)

    def shown(self, obj: HubObject, target: Resource) -> Object:
        return obj

    def taken(self, obj: Object, source: Resource) -> HubObject:
        return HubObject(obj)

"""The Migrations that virt-controller creates. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.apis.meta.objects import Object, name_of, namespace_of, uid_of
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES


def migration_of(vm: Object, cause: str, metadata: Mapping[str, object], **spec: object) -> Object:
    """Return a Migration owned by a machine.

    ``cause`` is part of its name, ``metadata`` has labels and annotations, and ``spec`` the fields besides the selector.
    """
    owner = {"apiVersion": VIRTUAL_MACHINES.api_version, "kind": VIRTUAL_MACHINES.kind, "name": name_of(vm), "uid": uid_of(vm)}
    return {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {
            "generateName": f"{name_of(vm)}-{cause}-",
            "namespace": namespace_of(vm),
            **metadata,
            "ownerReferences": [owner],
        },
        "spec": {"selector": {"name": name_of(vm)}, **spec},
    }

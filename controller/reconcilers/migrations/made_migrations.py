"""The Migrations that virt-controller makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.apis.meta.objects import Object, name_of, namespace_of, uid_of
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES


def migration_of(vm: Object, cause: str, metadata: Mapping[str, object], **spec: object) -> Object:
    """Return a Migration of a machine, which goes with it.

    Args:
        vm: the machine.
        cause: a word for why, which its name has.
        metadata: labels, annotations.
        spec: what it says beside the machine.
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

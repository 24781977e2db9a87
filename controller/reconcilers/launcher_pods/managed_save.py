"""The claim for images of the guest's memory: ``spec.managedSave``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.virt.lifecycle import managed_save
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.requirements import Requirements


def removal_requirements(claim: str, uid: str) -> Requirements:
    """Return the volume of the pod that deletes the files of the machine with this uid; it sees no other machine's."""
    mount = {"name": layout.MANAGED_SAVE_VOLUME, "mountPath": layout.IMAGE_REMOVAL_DIRECTORY, "subPath": uid}
    return Requirements(
        volumes=({"name": layout.MANAGED_SAVE_VOLUME, "persistentVolumeClaim": {"claimName": claim}},), mounts=(mount,), owns_files=True
    )


def requirements(spec: Mapping[str, Any]) -> Requirements:
    """Return the volume and mount of the claim in ``spec.managedSave``, if any."""
    claim = managed_save.claim_of(spec)
    if not claim:
        return Requirements()
    return Requirements(
        volumes=({"name": layout.MANAGED_SAVE_VOLUME, "persistentVolumeClaim": {"claimName": claim}},),
        mounts=({"name": layout.MANAGED_SAVE_VOLUME, "mountPath": layout.MANAGED_SAVE_DIRECTORY},),
        owns_files=True,
    )

"""The claims of a set with ``volumeClaimTemplates``: which the set creates, and which it deletes. Pure.

If ``whenScaled`` is ``Delete``, the set deletes only claims with its uid in their label and without a machine.
``whenDeleted: Delete`` makes the set their owner, so the garbage collector deletes them with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from apiserver.apis.core.resources import PERSISTENT_VOLUME_CLAIMS
from apiserver.apis.meta.objects import Object, dig, is_deleting, labels_of, name_of, namespace_of, owner_reference, uid_of
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals
from apiserver.apis.virt.places.resources import REPLICA_SETS

BY_SET: Final = "set"
"""Index of claims by the uid of the set that created them."""


def of_machine(replica_set: Object, ordinal: int) -> list[Object]:
    """Return the claims that the machine with this ordinal needs, as the set creates them."""
    return [_made(replica_set, each, ordinal) for each in ordinals.claim_templates(replica_set)]


def _made(replica_set: Object, template: Object, ordinal: int) -> Object:
    metadata: dict[str, Any] = {
        "name": ordinals.claim_name(replica_set, template, ordinal),
        "namespace": namespace_of(replica_set),
        "labels": {**(dig(template, "metadata", "labels") or {}), ordinals.SET_LABEL: uid_of(replica_set)},
    }
    if annotations := dig(template, "metadata", "annotations"):
        metadata["annotations"] = annotations
    if ordinals.retention(replica_set, ordinals.WHEN_DELETED) == ordinals.DELETE:
        metadata["ownerReferences"] = [owner_reference(replica_set, REPLICA_SETS)]
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "metadata": metadata,
        "spec": template["spec"],
    }


def superfluous(replica_set: Object, claims: Iterable[Object], machines: Iterable[Object]) -> tuple[Object, ...]:
    """Return the claims to delete: the set made them for unwanted ordinals, and their machines are gone.

    Empty if ``whenScaled`` is not ``Delete``, or the set is paused or being deleted.
    """
    stands_still = is_deleting(replica_set) or dig_replica_set(replica_set, "spec", "paused")
    if stands_still or ordinals.retention(replica_set, ordinals.WHEN_SCALED) != ordinals.DELETE:
        return ()
    wanted, present = ordinals.wanted(replica_set), {name_of(vm) for vm in machines}
    found = []
    for claim in claims:
        ordinal = ordinals.ordinal_of_claim(replica_set, name_of(claim))
        if ordinal is None or ordinal in wanted or ordinals.machine_name(replica_set, ordinal) in present:
            continue
        is_own = set_of(claim) == [uid_of(replica_set)] and namespace_of(claim) == namespace_of(replica_set)
        if is_own and not is_deleting(claim):
            found.append(claim)
    return tuple(found)


def set_of(claim: Object) -> list[str]:
    """Return the uid of the set that created a claim, as a list; empty if none did."""
    found = labels_of(claim).get(ordinals.SET_LABEL)
    return [found] if found else []

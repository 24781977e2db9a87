from __future__ import annotations

from typing import Any, Final

import pytest

from apiserver.apis.core.resources import PERSISTENT_VOLUME_CLAIMS
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.users import User
from controller.reconcilers.replica_sets import claims
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import forbidden_pods, policies
from tests.unit.charts.forbidden_pods import ACCOUNT
from tests.unit.controller.reconcilers.replica_sets.test_claims import a_claim, a_pool

POLICY: Final = "virt-controller-claims.kubevirt.io"
(OWNED,) = claims.of_machine(a_pool(deleted="Delete"), 0)
(KEPT,) = claims.of_machine(a_pool(), 0)
PROTECTION: Final = "kubernetes.io/pvc-protection"
"""kube-apiserver's plug-in StorageObjectInUseProtection adds it to each claim, before it evaluates policies."""
USERS: Final = a_claim("data", labels={})
OTHER_OWNER: Final = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "uid-of-web"}
OTHER_SET: Final = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachineReplicaSet", "name": "x", "uid": "x"}


@pytest.fixture(scope="module")
def world() -> World:
    return policies.world(forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), POLICY)


def changed(claim: Object, **metadata: Any) -> Object:
    return {**claim, "metadata": {**claim["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("operation", "new", "old", "user", "allowed"),
    [
        ("CREATE", KEPT, None, ACCOUNT, True),
        ("CREATE", OWNED, None, ACCOUNT, True),
        ("DELETE", None, KEPT, ACCOUNT, True),
        ("CREATE", USERS, None, ACCOUNT, False),
        ("CREATE", changed(KEPT, ownerReferences=[OTHER_OWNER]), None, ACCOUNT, False),
        ("CREATE", changed(KEPT, ownerReferences=[OTHER_SET]), None, ACCOUNT, False),
        ("CREATE", changed(KEPT, finalizers=[PROTECTION]), None, ACCOUNT, True),
        ("CREATE", changed(KEPT, finalizers=[PROTECTION, "x/y"]), None, ACCOUNT, False),
        ("DELETE", None, USERS, ACCOUNT, False),
        ("UPDATE", KEPT, USERS, ACCOUNT, False),
        ("UPDATE", OWNED, KEPT, ACCOUNT, False),
        ("DELETE", None, USERS, "alice", True),
    ],
)
async def test_virt_controller_makes_and_deletes_only_claims_of_sets(
    world: World, operation: Any, new: Object | None, old: Object | None, user: str, *, allowed: bool
) -> None:
    given = asking(resource=PERSISTENT_VOLUME_CLAIMS, operation=operation, name="data", namespace="ns", user=User(user, ()), obj=new,
                   old=old, subresource="", warn=lambda _: None, annotate=lambda *_: None)  # fmt: skip
    said = ""
    try:
        await world.plugin.validate(given)
    except StatusError as error:
        said = str(error)
    assert "resulted in error" not in said
    assert (said == "") is allowed

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import pytest

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.users import User
from apiserver.registry.generic.admission import Attributes
from controller.reconcilers.certificates.consumers import ETCD_BUNDLE_ANNOTATION, STATEFUL_SETS
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import forbidden_pods, policies
from tests.unit.charts.forbidden_pods import ACCOUNT

POLICY: Final = "virt-controller-etcd.kubevirt.io"
StatefulSet = dict[str, Any]
Change = Callable[[StatefulSet], Any]


def _pod(**fields: Any) -> Change:
    return lambda found: found["spec"]["template"]["spec"].update(fields)


def _container(**fields: Any) -> Change:
    return lambda found: found["spec"]["template"]["spec"]["containers"][0].update(fields)


def _spec(**fields: Any) -> Change:
    return lambda found: found["spec"].update(fields)


FORBIDDEN: Final = MappingProxyType[str, Change](
    {
        "a privileged container": _container(securityContext={"privileged": True}),
        "another program": _container(command=["/bin/busybox", "sh"]),
        "another image": _container(image="registry.example/evil:v1"),
        "the host's processes": _pod(hostPID=True),
        "the host's files": lambda found: found["spec"]["template"]["spec"]["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        "another service account": _pod(serviceAccountName="virt-handler", automountServiceAccountToken=True),
        "another node": _pod(nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
        "no etcd": _spec(replicas=0),
        "pods that no update replaces": _spec(updateStrategy={"type": "OnDelete"}),
        "a field more": _spec(minReadySeconds=600),
        "a field less": lambda found: found["spec"].pop("persistentVolumeClaimRetentionPolicy"),
        "a label of its pods": lambda found: found["spec"]["template"]["metadata"]["labels"].update({"a": "b"}),
        "another annotation of its pods": lambda found: found["spec"]["template"]["metadata"].update(annotations={"a": "b"}),
        "an owner, with whom it would go": lambda found: found["metadata"].update(
            ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]
        ),
        "a finalizer": lambda found: found["metadata"].update(finalizers=["example.com/x"]),
        "a label": lambda found: found["metadata"]["labels"].pop("app.kubernetes.io/part-of"),
    }
)


def etcd() -> StatefulSet:
    [found] = forbidden_pods.of_the_chart("StatefulSet")
    return copy.deepcopy(found)


def noted(found: StatefulSet) -> StatefulSet:
    found["metadata"].setdefault("annotations", {})[ETCD_BUNDLE_ANNOTATION] = "0123456789abcdef"
    found["spec"]["template"]["metadata"].setdefault("annotations", {})[ETCD_BUNDLE_ANNOTATION] = "0123456789abcdef"
    return found


@pytest.fixture(scope="module")
def world() -> World:
    return policies.world(forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), POLICY)


async def refusal(world: World, old: StatefulSet | None, new: StatefulSet | None, *, user: str = ACCOUNT, **more: Any) -> str:
    given = {
        "operation": "UPDATE",
        "namespace": "kubevirt",
        "name": "kubevirt-etcd",
        "user": User(user, ()),
        "old": old,
        "obj": new,
        **more,
    }
    said = ""
    try:
        await world.plugin.validate(Attributes(resource=STATEFUL_SETS, warn=world.warnings.append, annotate=lambda *_: None, **given))
    except StatusError as error:
        said = f"{error.code} {error}"
    assert not said or said.startswith("403 ")
    assert not said or POLICY in said
    assert "resulted in error" not in said
    return said


async def test_virt_controller_may_annotate_etcd_repeatedly(world: World) -> None:
    first = noted(etcd())
    assert await refusal(world, etcd(), first) == ""
    again = noted(etcd())
    again["spec"]["template"]["metadata"]["annotations"][ETCD_BUNDLE_ANNOTATION] = "fedcba9876543210"
    assert await refusal(world, first, again) == ""


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_virt_controller_may_change_nothing_else_of_etcd(world: World, change: Change) -> None:
    changed = etcd()
    change(changed)
    assert await refusal(world, etcd(), changed) != ""
    assert await refusal(world, noted(etcd()), noted(changed)) != ""


async def test_an_annotation_of_the_pods_is_not_taken_away(world: World) -> None:
    old = etcd()
    old["spec"]["template"]["metadata"]["annotations"] = {"example.com/injected": "no"}
    assert await refusal(world, old, noted(etcd())) != ""


@pytest.mark.parametrize(("operation", "subresource"), [("CREATE", ""), ("DELETE", ""), ("UPDATE", "scale"), ("UPDATE", "status")])
async def test_only_updates_of_etcd_are_allowed_under_any_rbac(world: World, operation: str, subresource: str) -> None:
    old, new = (None if operation == "CREATE" else etcd()), (None if operation == "DELETE" else etcd())
    assert "may only update" in await refusal(world, old, new, operation=operation, subresource=subresource)


async def test_installer_may_change_etcd(world: World) -> None:
    changed = etcd()
    FORBIDDEN["another image"](changed)
    assert await refusal(world, etcd(), changed, user="system:serviceaccount:kube-system:virt-controller") == ""

from __future__ import annotations

import asyncio
import copy
from typing import Any, Final

import pytest

from apiserver.admission.metrics import AdmissionMetrics
from apiserver.admission.policy import validating
from apiserver.admission.policy.metrics import ValidatingMetrics
from apiserver.admission.policy.plugin import PolicyDispatcher
from apiserver.admission.policy.source import Source
from apiserver.admission.policy.validating import ValidatingPolicies
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import name_of
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places.resources import REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.apis.virt.spec import service_accounts
from apiserver.cel.library.authz import Answer, Question
from apiserver.metrics.instruments import Registry
from tests.fakes.admission import asking
from tests.fakes.versions import OneVersion
from tests.unit.charts import forbidden_pods
from tests.unit.controller.reconcilers.builders import a_vm

Json = dict[str, Any]

POLICY: Final = "service-account-disks.kubevirt.io"
MAKER: Final = User("makes-pods", ())
OTHER: Final = User("makes-machines", ())
BLANK: Final = {"type": "EmptyDisk", "source": {"size": "1Gi"}}
TOKEN: Final = {"type": "ServiceAccount", "source": {"name": "robot"}}
BARE: Final = a_vm(domain={"devices": {"disks": [BLANK, {"device": "cdrom"}]}})
VM: Final = a_vm(domain={"devices": {"disks": [BLANK, TOKEN]}})


class Cluster(OneVersion):
    """Namespaces that allow service account disks or not, and the right to create pods in the one that does."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()

    async def get(self, name: str) -> Json:
        labels = {"open": {service_accounts.NAMESPACE_LABEL: "allowed"}, "other": {service_accounts.NAMESPACE_LABEL: "no"}}
        return {"metadata": {"name": name, **({"labels": labels[name]} if name in labels else {})}}

    async def ask(self, question: Question) -> Answer:
        assert (question.verb, question.group, question.resource, question.subresource, question.name) == ("create", "", "pods", "", "")
        return Answer(question.user == MAKER.name and question.namespace == "open")


@pytest.fixture(scope="module")
def policies() -> ValidatingPolicies:
    cluster: Any = Cluster()
    metrics = ValidatingMetrics()
    metrics.register(Registry())
    nobody: Any = None
    source = Source(nobody, VIRTUAL_MACHINES, VIRTUAL_MACHINES, cluster, validating.compile_policy)
    for each in forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        if name_of(each) == POLICY:
            (source._policy_changed if each["kind"] == "ValidatingAdmissionPolicy" else source._binding_changed)(None, each)
    source.known.set()
    return ValidatingPolicies(PolicyDispatcher(source, cluster, cluster, cluster.ask, AdmissionMetrics()), metrics)


async def refusal(policies: ValidatingPolicies, obj: Json | None, old: Json | None = None, **more: Any) -> str:
    operation: Any = "DELETE" if obj is None else "UPDATE" if old else "CREATE"
    given: Any = {"operation": operation, "namespace": "open", "user": MAKER, "resource": VIRTUAL_MACHINES, **more}
    said = ""
    try:
        await policies.validate(asking(name="testvm", obj=obj, old=old, warn=lambda _: None, annotate=lambda *_: None, **given))
    except StatusError as error:
        said = str(error)
    assert "resulted in error" not in said
    return said


def a_set(vm: Json, replicas: int = 1) -> Json:
    return {"metadata": {"name": "web", "namespace": "open"}, "spec": {"replicas": replicas, "template": {"spec": vm["spec"]}}}


async def test_a_sets_template_is_judged_like_a_machine(policies: ValidatingPolicies) -> None:
    """virt-controller would create the machine for a user who may not."""
    assert await refusal(policies, a_set(VM), resource=REPLICA_SETS) == ""
    assert "create pods" in await refusal(policies, a_set(VM), resource=REPLICA_SETS, user=OTHER)
    assert "create pods" in await refusal(policies, a_set(VM), a_set(BARE), resource=REPLICA_SETS, user=OTHER)
    assert "create pods" in await refusal(policies, a_set(with_another_disk(VM)), a_set(VM), resource=REPLICA_SETS, user=OTHER)
    assert "label" in await refusal(policies, a_set(VM), resource=REPLICA_SETS, namespace="shut")
    assert await refusal(policies, a_set(BARE), resource=REPLICA_SETS, user=OTHER, namespace="shut") == ""


def with_another_disk(vm: Json) -> Json:
    changed = copy.deepcopy(vm)
    changed["spec"]["domain"]["devices"]["disks"][0]["source"]["size"] = "2Gi"
    return changed


async def test_pod_creators_may_use_service_account_disks(policies: ValidatingPolicies) -> None:
    assert await refusal(policies, VM) == ""
    assert await refusal(policies, VM, BARE) == ""
    assert await refusal(policies, with_another_disk(VM), VM) == ""


@pytest.mark.parametrize("namespace", ["default", "other"])
async def test_a_namespace_without_the_label_has_no_such_machines(policies: ValidatingPolicies, namespace: str) -> None:
    for old in (None, BARE):
        assert "kubevirt.io/service-account-disks=allowed" in await refusal(policies, VM, old, namespace=namespace)


async def test_machine_creation_alone_grants_no_service_account(policies: ValidatingPolicies) -> None:
    for old in (None, BARE):
        assert "requires the right to create pods" in await refusal(policies, VM, old, user=OTHER)


async def test_machine_with_a_foreign_token_may_not_be_changed(policies: ValidatingPolicies) -> None:
    assert "requires the right to create pods" in await refusal(policies, with_another_disk(VM), VM, user=OTHER)


async def test_machine_whose_guest_keeps_a_token_stays_judged(policies: ValidatingPolicies) -> None:
    """The edit removes the disk for the next start: the guest still has the token."""
    running = copy.deepcopy(BARE)
    running.setdefault("status", {})["running"] = {"generation": 1, "domain": VM["spec"]["domain"]}
    assert "requires the right to create pods" in await refusal(policies, with_another_disk(running), running, user=OTHER)
    assert await refusal(policies, with_another_disk(running), running) == ""


async def test_nothing_else_is_judged(policies: ValidatingPolicies) -> None:
    other: Json = {"user": OTHER, "namespace": "default"}
    labelled = copy.deepcopy(VM)
    labelled["metadata"]["labels"] = {"app": "db"}
    assert await refusal(policies, labelled, VM, **other) == ""
    assert await refusal(policies, BARE, **other) == ""
    assert await refusal(policies, BARE, VM, **other) == ""
    assert await refusal(policies, with_another_disk(BARE), BARE, **other) == ""
    assert await refusal(policies, None, VM, **other) == ""
    assert await refusal(policies, VM, BARE, subresource="status", **other) == ""
    shapes: list[Json] = [{"spec": {}}, {"spec": {"domain": {"devices": {"disks": [{}]}}}}, {"metadata": {}}]
    for each in shapes:
        assert await refusal(policies, each, **other) == ""

from __future__ import annotations

import copy
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import name_of
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import service_accounts
from controller.reconcilers.certificates.consumers import ETCD_BUNDLE_ANNOTATION
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod, target_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.non_operational import marking_plan
from controller.reconcilers.pods import leftovers
from tests.reference_server import environment
from tests.reference_server.certificates import ADMIN, HOST
from tests.reference_server.environment import Environment
from tests.unit.charts import forbidden_pods, test_etcd_policy, test_fencing_policy
from tests.unit.charts.forbidden_pods import ACCOUNT, CREATIONS, DELETIONS, OURS, POLICY, SETTINGS, Pod, changed
from tests.unit.charts.test_fencing_policy import REFUSED
from tests.unit.charts.test_fencing_policy import changed as changed_node
from tests.unit.charts.test_kubevirt import objects
from tests.unit.charts.test_non_operational_policy import BOTH, OF_STATUS, ROLE, ready
from tests.unit.controller.reconcilers.builders import UID, a_migration
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import CLAIMS, MOVE, TINY, TOKEN
from tests.unit.controller.reconcilers.non_operational.test_marking_plan import AVOIDED, NOW, TRIED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/kubevirt/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/kubevirt/rolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
PODS = "/api/v1/namespaces/default/pods"
OF_NODES = (test_fencing_policy.POLICY, test_fencing_policy.ROLE, ROLE)


class Cluster:
    def __init__(self, here: Environment) -> None:
        self.here = here

    def ask(self, method: str, path: str, body: Any = None, *, user: str = ACCOUNT, kind: str = "application/json") -> tuple[int, Any]:
        made = self.here.certificates
        context = ssl.create_default_context(cafile=str(made.authority))
        context.load_cert_chain(made.certificate(ADMIN), made.key(ADMIN))
        connection = http.client.HTTPSConnection(HOST, self.here.kubernetes_port, context=context, timeout=30)
        headers = {"Content-Type": kind, "Accept": "application/json"} | ({"Impersonate-User": user} if user else {})
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def create(self, pod: Pod, user: str = ACCOUNT) -> tuple[int, Any]:
        return self.ask("POST", PODS, pod, user=user)

    def clear(self) -> None:
        for each in self.ask("GET", PODS, user="")[1]["items"]:
            self.ask("DELETE", f"{PODS}/{name_of(each)}?gracePeriodSeconds=0", user="")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with environment.environment(tmp_path_factory.mktemp("policy")) as here:
        known = Cluster(here)
        known.ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}}, user="")
        of_nodes = [each for each in objects(*BOTH) if name_of(each) in OF_NODES]
        for each in (*of_nodes, *forbidden_pods.of_the_chart(*PATHS)):
            if "virt-controller" in name_of(each) and each["metadata"].get("namespace", "kubevirt") == "kubevirt":
                code, answer = known.ask("POST", PATHS[each["kind"]], each, user="")
                assert code == http.client.CREATED, answer
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        known.ask("POST", "/api/v1/namespaces/default/serviceaccounts", account, user="")
        deadline = time.monotonic() + 60
        while known.create(changed(CREATIONS["hostPID"]))[0] != http.client.FORBIDDEN:
            known.clear()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield known


@pytest.fixture(autouse=True)
def _empty(cluster: Cluster) -> None:
    cluster.clear()


def test_every_pod_that_virt_controller_makes_is_created(cluster: Cluster) -> None:
    for pod in forbidden_pods.made():
        if "priorityClassName" in pod["spec"]:
            pod["spec"]["priorityClassName"] = "system-node-critical"
        code, answer = cluster.create(pod)
        assert code == http.client.CREATED, answer
        code, answer = cluster.ask("DELETE", f"{PODS}/{name_of(pod)}", {"preconditions": {"uid": answer["metadata"]["uid"]}})
        assert code == http.client.OK, answer
        cluster.clear()


@pytest.mark.parametrize("what", CREATIONS)
def test_a_pod_with_one_more_power_is_refused_by_the_policy(cluster: Cluster, what: str) -> None:
    pod = changed(CREATIONS[what])
    code, answer = cluster.create(pod)
    assert (code, POLICY in answer["message"]) == (http.client.FORBIDDEN, True), answer
    assert "resulted in error" not in answer["message"]


def test_token_disk_needs_the_namespaces_permission(cluster: Cluster) -> None:
    labels = {service_accounts.NAMESPACE_LABEL: "allowed"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "open", "labels": labels}}
    assert cluster.ask("POST", "/api/v1/namespaces", namespace, user="")[0] == http.client.CREATED
    vm = copy.deepcopy(TOKEN)
    pod = launcher_pod(vm, 1, {}, SETTINGS, Placement())
    code, answer = cluster.create(pod)
    assert (code, "service-account-disks=allowed" in answer["message"]) == (http.client.FORBIDDEN, True), answer
    vm["metadata"]["namespace"] = "open"
    allowed = launcher_pod(vm, 1, {}, SETTINGS, Placement())
    code, answer = cluster.ask("POST", "/api/v1/namespaces/open/pods", allowed)
    assert code == http.client.CREATED, answer
    assert leftovers.objection(answer, allowed, vm) == ""


def test_the_administrator_may_create_what_the_account_may_not(cluster: Cluster) -> None:
    """Otherwise kube-apiserver, not the policy, would have refused the pods above."""
    invalid = []
    for what, change in CREATIONS.items():
        code, answer = cluster.create(changed(change), user="")
        if code != http.client.CREATED:
            invalid.append((what, answer["message"]))
        cluster.clear()
    assert invalid == []


@pytest.mark.parametrize("what", OURS)
def test_our_pods_can_be_deleted_whatever_was_done_to_them(cluster: Cluster, what: str) -> None:
    made = cluster.create(changed(OURS[what]), user="")
    assert made[0] == http.client.CREATED, made[1]
    code, answer = cluster.ask("DELETE", f"{PODS}/{name_of(made[1])}")
    assert code == http.client.OK, answer


@pytest.mark.parametrize("what", DELETIONS)
def test_pods_of_others_cannot_be_deleted(cluster: Cluster, what: str) -> None:
    made = cluster.create(changed(DELETIONS[what]), user="")
    assert made[0] == http.client.CREATED, made[1]
    code, answer = cluster.ask("DELETE", f"{PODS}/{name_of(made[1])}")
    assert (code, "only launcher pods" in answer["message"]) == (http.client.FORBIDDEN, True), answer
    assert cluster.ask("GET", f"{PODS}/{name_of(made[1])}")[0] == http.client.OK


def test_a_pod_on_a_node_is_deleted_with_grace_and_not_by_force(cluster: Cluster) -> None:
    pod = changed(OURS["as it was made"])
    pod["spec"]["nodeName"] = "node1"
    assert cluster.create(pod)[0] == http.client.CREATED
    path = f"{PODS}/{name_of(pod)}"
    for options in ({"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}):
        code, answer = cluster.ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        assert (code, "force-delete" in answer["message"]) == (http.client.FORBIDDEN, True), answer
    code, answer = cluster.ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions"})
    assert code == http.client.OK, answer
    assert answer["metadata"]["deletionGracePeriodSeconds"] == pod["spec"]["terminationGracePeriodSeconds"]


def test_pods_are_neither_changed_nor_entered_with_the_account(cluster: Cluster) -> None:
    pod = changed(OURS["as it was made"])
    assert cluster.create(pod)[0] == http.client.CREATED
    path = f"{PODS}/{name_of(pod)}"
    merge, labels = "application/merge-patch+json", {"metadata": {"labels": {"a": "b"}}}
    assert cluster.ask("PATCH", path, labels, kind=merge)[0] == http.client.FORBIDDEN
    resources = ["pods", "pods/exec", "pods/attach", "pods/portforward", "pods/binding"]
    rule = {"apiGroups": [""], "resources": resources, "verbs": ["*"]}
    rbac = "rbac.authorization.k8s.io"
    role: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "too-much"}, "rules": [rule]}
    subjects = [{"apiGroup": rbac, "kind": "User", "name": ACCOUNT}]
    bound = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "too-much"},
        "subjects": subjects,
    }
    for each in (role, bound):
        assert cluster.ask("POST", PATHS[each["kind"]], each, user="")[0] == http.client.CREATED
    try:
        deadline = time.monotonic() + 30
        while (answer := cluster.ask("PATCH", path, labels, kind=merge))[0] == http.client.FORBIDDEN and POLICY not in answer[1]["message"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "may only create and delete" in answer[1]["message"]
        for subresource in ("exec?command=id&stdout=true", "attach?stdout=true", "portforward?ports=22"):
            code, said = cluster.ask("POST", f"{path}/{subresource}")
            assert "may only create and delete" in said["message"], (code, said)
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)}, "target": {"kind": "Node", "name": "node1"}}
        code, said = cluster.ask("POST", f"{path}/binding", binding)
        assert "may only create and delete" in said["message"], (code, said)
        code, said = cluster.ask("DELETE", PODS)
        assert code == http.client.OK, said
    finally:
        for each in (bound, role):
            cluster.ask("DELETE", f"{PATHS[each['kind']]}/too-much", user="")


def test_account_resizes_only_the_memory_of_launcher_pods(cluster: Cluster) -> None:
    """Of pods without a node, because kube-apiserver asks whether the node has room."""
    for pod, allowed in ((changed(OURS["as it was made"]), True), (changed(DELETIONS["another name"]), False)):
        code, made = cluster.create(pod, user="")
        assert code == http.client.CREATED, made
        path, kind = f"{PODS}/{name_of(made)}", "application/strategic-merge-patch+json"
        memory = {"memory": "3Gi"}
        for resources, is_memory in (({"requests": memory, "limits": memory}, True), ({"requests": {"cpu": "2"}}, False)):
            container = {"name": names.CONTAINER, "resources": resources}
            patch = {"metadata": {"uid": made["metadata"]["uid"]}, "spec": {"containers": [container]}}
            code, answer = cluster.ask("PATCH", f"{path}/resize", patch, kind=kind)
            if allowed and is_memory:
                assert code == http.client.OK, answer["message"]
                assert answer["spec"]["containers"][0]["resources"]["limits"]["memory"] == "3Gi"
            else:
                assert (code, "resize only launcher pods" in answer["message"]) == (http.client.FORBIDDEN, True), answer


def test_account_writes_only_the_guest_readiness_of_pods(cluster: Cluster) -> None:
    pod = changed(OURS["as it was made"])
    pod["metadata"]["annotations"] = {"a": "b"}
    pod["metadata"]["finalizers"] = ["example.com/f"]
    code, made = cluster.create(pod)
    assert code == http.client.CREATED, made
    path, strategic = f"{PODS}/{name_of(pod)}", "application/strategic-merge-patch+json"
    kubelets = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "False"}]}
    assert cluster.ask("PATCH", f"{path}/status", {"status": kubelets}, kind=strategic, user="")[0] == http.client.OK
    patch: dict[str, Any] = {}
    try:
        for status in ("True", "False", "True"):
            told = {"type": names.GUEST_RUNNING_GATE, "status": status, "reason": "R", "message": "m"}
            written = {**told, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            patch = {"metadata": {"uid": made["metadata"]["uid"]}, "status": {"conditions": [written]}}
            code, answer = cluster.ask("PATCH", f"{path}/status", patch, kind=strategic)
            assert code == http.client.OK, answer
            found = {each["type"]: each["status"] for each in answer["status"]["conditions"]}
            assert found == {"Ready": "False", names.GUEST_RUNNING_GATE: status}
        code, answer = cluster.ask("PATCH", f"{path}/status", {**patch, "metadata": {"uid": "another"}}, kind=strategic)
        assert code in (http.client.CONFLICT, http.client.UNPROCESSABLE_ENTITY), answer
        for other in (
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {"status": {"conditions": [{"type": "example.com/x", "status": "True"}]}},
            {"status": {"podIP": "10.0.0.2", "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}]}},
            {"status": {"phase": "Failed"}},
            {"metadata": {"labels": {"app": "db"}}},
            {"metadata": {"annotations": {"a": "c"}}},
            {"metadata": {"finalizers": ["example.com/g"]}},
        ):
            code, answer = cluster.ask("PATCH", f"{path}/status", other, kind=strategic)
            assert (code, "may write only the condition" in answer.get("message", "")) == (http.client.FORBIDDEN, True), (other, answer)
    finally:
        cluster.ask("PATCH", path, {"metadata": {"finalizers": None}}, kind="application/merge-patch+json", user="")


def test_nothing_is_told_in_the_status_of_other_pods(cluster: Cluster) -> None:
    told = {"status": {"conditions": [{"type": names.GUEST_RUNNING_GATE, "status": "True"}]}}
    for what, change in {**DELETIONS, "no gate": lambda pod: pod["spec"].pop("readinessGates")}.items():
        made = cluster.create(changed(change), user="")
        assert made[0] == http.client.CREATED, made[1]
        path = f"{PODS}/{name_of(made[1])}/status"
        code, answer = cluster.ask("PATCH", path, told, kind="application/strategic-merge-patch+json")
        assert (code, "readiness gate" in answer.get("message", "")) == (http.client.FORBIDDEN, True), (what, answer)
        cluster.clear()


def test_our_pods_with_server_defaults_are_recognized(cluster: Cluster) -> None:
    for vm in forbidden_pods.examples():
        vm["metadata"].setdefault("namespace", "default")
        for wanted in (
            launcher_pod(vm, 3, CLAIMS, SETTINGS, Placement(kvm=True, avoid_nodes=("node1",))),
            target_pod(vm, a_migration(), 1, CLAIMS, SETTINGS, MOVE),
        ):
            if "priorityClassName" in wanted["spec"]:
                wanted["spec"]["priorityClassName"] = "system-node-critical"
            code, found = cluster.create(wanted)
            assert code == http.client.CREATED, found
            assert leftovers.objection(found, wanted, vm) == "", name_of(wanted)
            assert cluster.ask("DELETE", f"{PODS}/{name_of(wanted)}", user="")[0] == http.client.OK
            cluster.clear()


def test_tenant_can_forge_all_marks_but_not_the_compared_spec(cluster: Cluster) -> None:
    """A tenant with ``edit`` may name any uid as a pod's controller."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}
    rbac = "rbac.authorization.k8s.io"
    role: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "edit"}, "rules": [rule]}
    subjects = [{"apiGroup": rbac, "kind": "User", "name": "tenant"}]
    bound = {**role, "kind": "RoleBinding", "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "edit"}, "subjects": subjects}
    for each, plural in ((role, "roles"), (bound, "rolebindings")):
        assert cluster.ask("POST", f"/apis/{rbac}/v1/namespaces/default/{plural}", each, user="")[0] == http.client.CREATED
    wanted = changed(OURS["as it was made"])
    forged = copy.deepcopy(wanted)
    forged["spec"]["containers"][0] |= {"image": "registry.example/evil:v1", "command": ["sh"]}
    deadline = time.monotonic() + 30
    while (answer := cluster.create(forged, user="tenant"))[0] == http.client.FORBIDDEN:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert answer[0] == http.client.CREATED, answer
    assert answer[1]["metadata"]["ownerReferences"] == wanted["metadata"]["ownerReferences"]
    assert answer[1]["metadata"]["labels"][names.CREATED_BY_LABEL] == UID
    assert leftovers.objection(answer[1], wanted, TINY) == "spec.containers[].image differs"


def test_account_changes_only_the_annotation_of_etcd(cluster: Cluster) -> None:
    """Its namespace admits privileged pods: a free patch would allow any."""
    collection = "/apis/apps/v1/namespaces/kubevirt/statefulsets"
    code, made = cluster.ask("POST", collection, test_etcd_policy.etcd(), user="")
    assert code == http.client.CREATED, made
    path, merge = f"{collection}/kubevirt-etcd", "application/merge-patch+json"
    note = {"metadata": {"annotations": {ETCD_BUNDLE_ANNOTATION: "0123456789abcdef"}}}
    try:
        for patch in (note, {**note, "spec": {"template": note}}):
            code, answer = cluster.ask("PATCH", path, patch, kind=merge)
            assert code == http.client.OK, answer
        found = cluster.ask("GET", path)[1]
        passed = []
        for what, change in test_etcd_policy.FORBIDDEN.items():
            changed = copy.deepcopy(found)
            change(changed)
            whole = [{"op": "replace", "path": f"/{part}", "value": changed[part]} for part in ("metadata", "spec")]
            code, answer = cluster.ask("PATCH", path, whole, kind="application/json-patch+json")
            if code == http.client.OK and answer["spec"] == found["spec"]:
                continue
            if (code, test_etcd_policy.POLICY in answer.get("message", "")) != (http.client.FORBIDDEN, True):
                passed.append((what, code, answer.get("message")))
            assert "resulted in error" not in answer.get("message", "")
        assert passed == []
    finally:
        cluster.ask("DELETE", path, user="")


def test_account_marks_nodes_and_writes_nothing_else_of_them(cluster: Cluster) -> None:
    """With both options of the chart: kube-apiserver merges the condition, and refuses other changes."""
    given, nodes, strategic = ready(), "/api/v1/nodes", "application/strategic-merge-patch+json"
    given["metadata"]["finalizers"], given["spec"]["podCIDR"] = ["example.com/f"], given["spec"]["podCIDRs"][0]
    path = f"{nodes}/{name_of(given)}"
    code, made = cluster.ask("POST", nodes, given, user="")
    assert code == http.client.CREATED, made
    try:
        status = {**given["status"], "capacity": {"memory": "1Gi"}}
        assert cluster.ask("PATCH", f"{path}/status", {"status": status}, kind=strategic, user="")[0] == http.client.OK
        node = made
        for told in (AVOIDED, TRIED, AVOIDED):
            code, node = cluster.ask("PATCH", f"{path}/status", marking_plan.status_patch(node, told, NOW), kind=strategic)
            assert code == http.client.OK, node
            found = {each["type"]: each["status"] for each in node["status"]["conditions"]}
            assert found == {"Ready": "True", "KubevirtNonOperational": told.status}
        code, tainted = cluster.ask("PUT", path, marking_plan.with_taint(node, "NoSchedule"))
        assert (code, marking_plan.effects_of(tainted)) == (http.client.OK, ["NoSchedule"]), tainted
        assert cluster.ask("PUT", path, marking_plan.with_taint(node, None))[0] == http.client.CONFLICT
        metadata = ("a label", "another annotation", "a finalizer gone")
        of_status = (*metadata, *(each for each in OF_STATUS if each not in REFUSED and each not in ("the taint", "who fenced it")))
        of_node = (*metadata, "another taint", "another taint gone", "cordoned")
        passed = [(what, cluster.ask("PUT", path, changed_node(OF_STATUS[what], tainted))) for what in of_node]
        for what in of_status:
            new = changed_node(OF_STATUS[what], tainted)
            whole = [{"op": "replace", "path": f"/{part}", "value": new[part]} for part in ("metadata", "status")]
            passed.append((what, cluster.ask("PATCH", f"{path}/status", whole, kind="application/json-patch+json")))
        words = [(what, code, answer.get("message", "")) for what, (code, answer) in passed]
        assert [each for each in words if each[1] != http.client.FORBIDDEN or test_fencing_policy.POLICY not in each[2]] == []
        assert [each for each in words if "resulted in error" in each[2]] == []
    finally:
        cluster.ask("PATCH", path, {"metadata": {"finalizers": None}}, kind="application/merge-patch+json", user="")
        cluster.ask("DELETE", path, user="")

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta import errors
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REGISTRATION = "admissionregistration.k8s.io/v1"
PARAMS = "virt-api-policy-params"


def policy(kubectl: Kubectl, effect: str, spec: dict[str, Any], binding: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    name = f"{effect.lower()}-{kubectl.namespace}"
    rules = [{"apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["virtualmachines"]}]
    here = {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}}
    constraints = {"resourceRules": rules, "namespaceSelector": here}
    metadata = {"name": name}
    return (
        {
            "apiVersion": REGISTRATION, "kind": f"{effect}AdmissionPolicy", "metadata": metadata,
            "spec": {"matchConstraints": constraints, **spec},
        },
        {
            "apiVersion": REGISTRATION, "kind": f"{effect}AdmissionPolicyBinding", "metadata": metadata,
            "spec": {"policyName": name, **binding},
        },
    )  # fmt: skip


def halted(name: str, memory: str = "128Mi") -> dict[str, Any]:
    vm = tiny_vm(name, runStrategy="Halted")
    vm["spec"]["domain"]["memory"]["guest"] = memory
    return vm


def test_validating_policy_with_a_config_map_denies_a_machine(kubectl: Kubectl) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": "virt-api", "namespace": release.NAMESPACE}]
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [
            {
                "expression": "quantity(object.spec.domain.memory.guest).compareTo(quantity(params.data.memory)) <= 0",
                "messageExpression": "'at most ' + params.data.memory + ' of memory'",
            }
        ],
    }
    binding = {"validationActions": ["Deny"], "paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}}
    made = policy(kubectl, "Validating", spec, binding)
    limits = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}, "data": {"memory": "256Mi"}}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": PARAMS}, "rules": rules}
    bound = {
        "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": PARAMS},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": PARAMS}, "subjects": subjects,
    }  # fmt: skip
    kubectl.api.apply(role, bound, limits, *made)
    name = made[0]["metadata"]["name"]
    try:

        def refusal() -> str:
            try:
                kubectl.api.try_create(halted("large", "1Gi"))
            except errors.StatusError as error:
                return str(error) if "at most" in str(error) else ""
            return ""

        said = eventually(refusal, timeout=60, what="the policy to be enforced")
        assert f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: at most 256Mi of memory" in said
        kubectl.api.create(halted("small"))
        with pytest.raises(errors.StatusError, match="at most 256Mi"):
            kubectl.api.patch("vm", "small", {"spec": {"domain": {"memory": {"guest": "1Gi"}}}})
    finally:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            kubectl.api.delete(kind, name)
        for kind in ("clusterroles", "clusterrolebindings"):
            kubectl.api.delete(kind, PARAMS)


def test_a_mutating_policy_labels_machines(kubectl: Kubectl) -> None:
    apply = "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}"
    patch = "[JSONPatch{op: 'add', path: '/metadata/labels/by', value: request.operation.lowerAscii()}]"
    spec = {
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
        ],
    }
    made = policy(kubectl, "Mutating", spec, {})
    kubectl.api.apply(*made)
    try:

        def labels() -> dict[str, str]:
            given: dict[str, str] = kubectl.api.try_create(halted("labelled"))["metadata"].get("labels", {})
            return given

        found = eventually(labels, timeout=60, what="the policy to be applied")
        assert (found["added"], found["by"]) == ("yes", "create")
    finally:
        for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            kubectl.api.delete(kind, made[0]["metadata"]["name"])

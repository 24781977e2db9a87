"""Further networks of pods: Multus as the nodes' CNI plugin, on request of a test.

Multus calls the nodes' former CNI plugin for each pod's own interface, and a NetworkAttachmentDefinition's configuration for each network
in the annotation ``k8s.v1.cni.cncf.io/networks``.
"""

import json
import time

from tests.testbed import build, kubectl, layout, nodes, pki, progress

CONFIGURATION = "00-multus.conf"
_USER = "multus"
_CRD = "network-attachment-definitions.k8s.cni.cncf.io"


def install() -> None:
    for node in layout.NODES:
        _refuse_older(node)
    program = build.program("multus")
    pki.ensure_user(_USER, f"/CN={_USER}")
    with kubectl.own_cluster(), progress.step("Networks of NetworkAttachmentDefinitions"):
        kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [crd(), *rights()]}))
        kubectl.run("wait", "--for=condition=Established", f"crd/{_CRD}", "--timeout=60s")
        for node in layout.NODES:
            plugin = nodes.plugins_of(node) / "multus"
            plugin.parent.mkdir(exist_ok=True)
            plugin.unlink(missing_ok=True)
            plugin.symlink_to(program)
            _write_configuration(node)


def _refuse_older(node: layout.Node) -> None:
    if str(nodes.plugins_of(node)) not in (node.directory / "containerd.toml").read_text():
        raise progress.StepFailed(f"containerd of {node.name} was started without a directory for further plugins: make cluster-down first")


def _write_configuration(node: layout.Node) -> None:
    path, content = node.directory / "cni" / CONFIGURATION, json.dumps(configuration(node), indent=1)
    if path.exists() and path.read_text() == content:
        return
    new = path.with_name(f".{CONFIGURATION}.new")  # containerd ignores this extension
    new.write_text(content)
    new.rename(path)
    time.sleep(1)  # containerd reads it after an inotify event, without confirming


def configuration(node: layout.Node) -> dict[str, object]:
    return {
        "cniVersion": "1.0.0",
        "name": "networks",
        "type": "multus",
        "kubeconfig": str(pki.kubeconfig_of(_USER)),
        # Not clusterNetwork with the path of the file: on deletion it would lose everything in it but types and names.
        "delegates": [nodes.cni_configuration(node)],
        "namespaceIsolation": True,
        "capabilities": {"portMappings": True},
        "confDir": str(node.directory / "cni"),
        "binDir": nodes.CNI_PLUGINS,
        "cniDir": "/run/cni/multus",  # emptied with the pods when the node is recreated
        "logToStderr": False,
    }


def crd() -> dict[str, object]:
    spec = {"type": "object", "properties": {"config": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": _CRD},
        "spec": {
            "group": "k8s.cni.cncf.io",
            "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions",
                "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition",
                "shortNames": ["net-attach-def"],
            },
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def rights() -> list[dict[str, object]]:
    rules = [
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["network-attachment-definitions"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["update"]},
    ]
    role, group = {"name": _USER}, "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": role, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": _USER},
            "subjects": [{"apiGroup": group, "kind": "User", "name": _USER}],
        },
    ]

"""Further networks of pods, by NetworkAttachmentDefinitions: Multus as the nodes' CNI plugin, where a test asks for it.

Multus calls what was the nodes' network before for each pod's own interface, and a NetworkAttachmentDefinition's configuration for each
network of the pod's annotation ``k8s.v1.cni.cncf.io/networks``. ``namespaceIsolation``: a pod has networks of its own namespace, and of
``default``. Of the cluster's API it may read pods and NetworkAttachmentDefinitions and write the status of pods, nothing else.
"""

import json
import time

from tests.testbed import build, kubectl, layout, nodes, pki, progress

CONFIGURATION = "00-multus.conf"
_USER = "multus"
_CRD = "network-attachment-definitions.k8s.cni.cncf.io"


def install() -> None:
    """Make Multus the CNI plugin of both nodes; what is there already stays.

    Raises:
        progress.StepFailed: it could not be built, or the nodes were started by an older test bed.
    """
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
    new = path.with_name(f".{CONFIGURATION}.new")  # of no extension that containerd looks for
    new.write_text(content)
    new.rename(path)
    time.sleep(1)  # containerd reads it when the kernel tells of it, and says nowhere that it has


def configuration(node: layout.Node) -> dict[str, object]:
    """Return the CNI configuration of a node."""
    return {
        "cniVersion": "1.0.0",
        "name": "networks",
        "type": "multus",
        "kubeconfig": str(pki.kubeconfig_of(_USER)),
        # Not clusterNetwork with the path of the file: at a deletion it would forget what is in there but types and names.
        "delegates": [nodes.cni_configuration(node)],
        "namespaceIsolation": True,
        "capabilities": {"portMappings": True},
        "confDir": str(node.directory / "cni"),
        "binDir": nodes.CNI_PLUGINS,
        "cniDir": "/run/cni/multus",  # forgets, as the pods do, when the node is made anew
        "logToStderr": False,
    }


def crd() -> dict[str, object]:
    """Return the resource's definition, as the multi-network specification has it."""
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
    """Return what lets Multus read and write what it has to."""
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

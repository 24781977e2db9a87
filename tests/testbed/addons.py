import json
import shutil
import string

from tests.testbed import images, kubectl, layout

SHARED_CLASS = "shared"
_SHARED_VOLUMES = 16
_SHARED_SIZE = "2Gi"


def apply_dns() -> None:
    template = string.Template((layout.SOURCES / "manifests" / "coredns.yaml").read_text())
    kubectl.apply(template.substitute(address=layout.DNS_ADDRESS, image=images.COREDNS))


def wait_for_dns(seconds: int = 120) -> None:
    kubectl.run("rollout", "status", "deployment/coredns", "--namespace=kube-system", f"--timeout={seconds}s", timeout_seconds=seconds + 10)


def apply_network_policies() -> None:
    user, group = "network-policies", "rbac.authorization.k8s.io"
    reads = {"verbs": ["list", "watch"]}
    rules = [
        {"apiGroups": [""], "resources": ["pods", "namespaces"], **reads},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], **reads},
    ]
    role: dict[str, object] = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}
    binding = {
        **{key: value for key, value in role.items() if key != "rules"},
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]}))


def apply_storage() -> None:
    objects: list[dict[str, object]] = [_storage_class(SHARED_CLASS)]
    for number in range(_SHARED_VOLUMES):
        directory = layout.shared_volumes() / f"shared-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"shared-{number}"},
                "spec": {
                    "storageClassName": SHARED_CLASS,
                    "capacity": {"storage": _SHARED_SIZE},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "volumeMode": "Filesystem",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(directory), "type": "Directory"},
                },
            }
        )
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def _storage_class(name: str, *, is_default: bool = False) -> dict[str, object]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "kubernetes.io/no-provisioner",
        "reclaimPolicy": "Retain",
    }


def set_default_class(*, is_default: bool) -> None:
    value = "true" if is_default else "false"
    kubectl.run("annotate", "--overwrite", "storageclass", SHARED_CLASS, f"storageclass.kubernetes.io/is-default-class={value}")


def recycle_shared_volumes() -> None:
    for volume in kubectl.get("persistentvolumes")["items"]:
        name = volume["metadata"]["name"]
        if volume["status"].get("phase") == "Released" and name.startswith("shared-"):
            directory = layout.shared_volumes() / name
            for entry in directory.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            # The test operation keeps a claim that was bound meanwhile.
            still = {"op": "test", "path": "/metadata/resourceVersion", "value": volume["metadata"]["resourceVersion"]}
            patch = json.dumps([still, {"op": "remove", "path": "/spec/claimRef"}])
            kubectl.run("patch", "persistentvolume", name, "--type=json", f"--patch={patch}")

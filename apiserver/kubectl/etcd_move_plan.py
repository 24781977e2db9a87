"""Decisions of ``kubectl virt move-etcd``: whether the data can be moved, and the objects to create. Pure.

The data, a directory on one node (``etcd.storage.type: NodeDisk`` in the chart), is copied whole
(``docs/decisions/storage.md``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta.objects import Object, annotations_of, dig, name_of
from apiserver.kubectl.messages import Failure

STATEFUL_SET: Final = "kubevirt-etcd"
POD: Final = "kubevirt-etcd-0"
CLAIM: Final = "data-kubevirt-etcd-0"
RECORD: Final = "kubevirt.io/etcd-move"
"""The StatefulSet's :class:`Move` as JSON."""
HOSTNAME: Final = "kubernetes.io/hostname"
USER: Final = 65532
BUSYBOX: Final = "/bin/busybox"
DIRECTORY: Final = "/data"
"""In the copying pods."""
SECONDS: Final = 3600
"""Of a copying pod."""

CURRENT: Final = "data"
"""Below it: etcd's data."""
STAGED: Final = "moving"
"""Below it: a possibly incomplete copy."""
EXISTS: Final = f"test ! -e {DIRECTORY}/{CURRENT} || echo exists"
CLEAR: Final = f"cd {DIRECTORY} && {BUSYBOX} rm -rf {CURRENT} {STAGED} && {BUSYBOX} mkdir -m 0700 {STAGED}"
PACK: Final = f"{BUSYBOX} tar -cf - -C {DIRECTORY}/{CURRENT} ."
UNPACK: Final = f"{BUSYBOX} tar -xf - -C {DIRECTORY}/{STAGED} && {BUSYBOX} sync"
ADOPT: Final = f"cd {DIRECTORY} && {BUSYBOX} mv {STAGED} {CURRENT} && {BUSYBOX} sync"


def sums(directory: str) -> str:
    """Return the shell command that prints the digests of all files in ``directory``, ``CURRENT`` or ``STAGED``, in a copying pod."""
    return f"cd {DIRECTORY}/{directory} && {BUSYBOX} find . -type f -exec {BUSYBOX} sha256sum {{}} +"


def retire(suffix: str) -> str:
    """Return the shell command that renames the source's data, so etcd never starts with them; ``suffix`` ends the new name."""
    return f"cd {DIRECTORY} && test ! -e {CURRENT} || {BUSYBOX} mv {CURRENT} {CURRENT}.moved-{suffix}"


@dataclass(frozen=True, slots=True)
class Move:
    """A move of etcd's data between two nodes, recorded before etcd stops, so another run can finish it."""

    source: str
    """Label ``kubernetes.io/hostname`` of the node."""
    target: str
    volume: Object
    """To create on the target."""

    @property
    def path(self) -> str:
        """The data's directory on both nodes."""
        return str(self.volume["spec"]["hostPath"]["path"])

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps({"source": self.source, "target": self.target, "volume": self.volume}, sort_keys=True)


def recorded(stateful_set: Object) -> Move | None:
    """Return the move that an earlier run recorded, or None. Raises Failure for an invalid annotation."""
    text = annotations_of(stateful_set).get(RECORD)
    if not text:
        return None
    try:
        read = json.loads(text)
        move = Move(str(read["source"]), str(read["target"]), dict(read["volume"]))
        if move.path and host_of(move.volume) == move.target:
            return move
    except (ValueError, TypeError, KeyError):
        pass
    raise Failure(f"error: the annotation {RECORD} of statefulset/{STATEFUL_SET} is not valid")


def host_of(volume: Object | None) -> str:
    """Return the hostname label of the only node that can use a volume; empty for none or several."""
    terms = dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    if len(terms) != 1:
        return ""
    values = [each.get("values") or [] for each in terms[0].get("matchExpressions") or () if each.get("key") == HOSTNAME]
    return str(values[0][0]) if len(values) == 1 and len(values[0]) == 1 else ""


def begin(volume: Object, node: Object) -> Move | None:
    """Return the Move of a volume's data to a node; None if the data are on this node. Raises Failure, with advice, if impossible."""
    target, source = node_label(node), host_of(volume)
    if source == target:
        return None
    if not dig(volume, "spec", "hostPath", "path"):
        advice = f"cordon its node and run kubectl delete pod {POD}: it starts on another node"
        if dig(volume, "spec", "nodeAffinity"):
            advice = "back up etcd, delete the claim, install again and restore the backup"
        raise Failure(f"error: the volume {name_of(volume)} of claim {CLAIM} is not a NodeDisk volume of the chart; {advice}")
    if not source:
        raise Failure(f"error: the volume {name_of(volume)} names no node")
    if dig(volume, "spec", "persistentVolumeReclaimPolicy") != "Retain":
        raise Failure(
            f"error: deleting the claim would delete the data: set persistentVolumeReclaimPolicy of volume {name_of(volume)} to Retain"
        )
    if dig(node, "spec", "unschedulable"):
        raise Failure(f"error: node {name_of(node)} is cordoned; uncordon it first")
    return Move(source, target, _volume_on(volume, target))


def node_label(node: Object) -> str:
    """Return a node's hostname label, else its name."""
    return str((dig(node, "metadata", "labels") or {}).get(HOSTNAME) or name_of(node))


def _volume_on(volume: Object, host: str) -> Object:
    metadata, spec, claim = volume["metadata"], volume["spec"], volume["spec"]["claimRef"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith("pv.kubernetes.io/")}
    expression = {"key": HOSTNAME, "operator": "In", "values": [host]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}, "annotations": kept},
        "spec": {
            **{key: spec[key] for key in ("capacity", "accessModes", "persistentVolumeReclaimPolicy", "storageClassName") if key in spec},
            "claimRef": {key: claim[key] for key in ("apiVersion", "kind", "namespace", "name") if key in claim},
            "hostPath": {"path": spec["hostPath"]["path"], "type": "Directory"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }


def copying_pod(role: str, move: Move, stateful_set: Object) -> Object:
    """Return the pod that reads the directory on the source (``role`` ``from``) or writes it on the target (``to``).

    The target's schedules like etcd, as a proof before etcd stops; the source's also runs on a drained node.
    """
    template = dig(stateful_set, "spec", "template", "spec") or {}
    etcd = (template.get("containers") or [{}])[0]
    image = {key: etcd[key] for key in ("image", "imagePullPolicy") if key in etcd}
    to_target = role == "to"
    spec: dict[str, Any] = {key: template[key] for key in ("imagePullSecrets", "priorityClassName") if template.get(key)}
    spec |= {
        "nodeSelector": {HOSTNAME: move.target if to_target else move.source},
        "tolerations": list(template.get("tolerations") or ()) if to_target else [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "initContainers": [
            _container("directory", image, f"chown {USER}:{USER} {DIRECTORY} && {BUSYBOX} chmod 0700 {DIRECTORY}", root=True)
        ]
        if to_target
        else [],
        "containers": [_container("copy", image, f"sleep {SECONDS}", root=False)],
        "volumes": [{"name": "data", "hostPath": {"path": move.path, "type": "DirectoryOrCreate" if to_target else "Directory"}}],
    }
    labels = {"app.kubernetes.io/name": "etcd-move", "app.kubernetes.io/part-of": "kubevirt"}
    metadata = {"name": pod_name(role), "namespace": dig(stateful_set, "metadata", "namespace"), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_name(role: str) -> str:
    """Return the name of the copying pod with ``role`` ``from`` or ``to``."""
    return f"etcd-move-{role}"


def _container(name: str, image: Object, command: str, *, root: bool) -> Object:
    user = 0 if root else USER
    return {
        "name": name,
        **image,
        "command": [BUSYBOX, "sh", "-c", f"{BUSYBOX} {command}"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "runAsUser": user,
            "runAsGroup": user,
            "runAsNonRoot": not root,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], **({"add": ["CHOWN", "FOWNER", "DAC_OVERRIDE"]} if root else {})},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "data", "mountPath": DIRECTORY}],
    }

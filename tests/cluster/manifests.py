from __future__ import annotations

from typing import Any

from tests.guest_kernel import KERNEL_ARGS

GUEST_IMAGE = "localhost/kubevirt/testguest:dev"
BZIMAGE = {"kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.gz"}


def tiny_vm(name: str, *, run: str = "", **spec: Any) -> dict[str, Any]:
    """Return the smallest VM, with the tiny kernel and no disk; the guest first runs ``run``: ``counter,dirty=100``."""
    arguments = {"kernelArgs": f"guest.run={run}"} if run else {}
    return _vm(name, {"container": {"image": GUEST_IMAGE, "kernelPath": "/boot/tiny"}, **arguments}, spec)


def linux_vm(name: str, **spec: Any) -> dict[str, Any]:
    container = {"image": GUEST_IMAGE, "kernelPath": "/boot/vmlinux", "initrdPath": "/boot/initrd"}
    return _vm(name, {"container": container, "kernelArgs": KERNEL_ARGS}, spec)


def _vm(name: str, kernel_boot: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    domain = {
        "cpu": {"cores": 1},
        "memory": {"guest": "128Mi"},
        "firmware": {"kernelBoot": kernel_boot},
        "devices": {"graphics": [{"type": "vnc"}], "consoles": [{"type": "pty"}]},
    }
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 20, "domain": domain, **spec},
    }


def with_disks(vm: dict[str, Any], *disks: dict[str, Any]) -> dict[str, Any]:
    vm["spec"]["domain"]["devices"]["disks"] = list(disks)
    return vm


def claim_disk(claim: str) -> dict[str, Any]:
    return {"name": "data", "type": "PersistentVolumeClaim", "device": "disk", "source": {"name": claim}, "target": {"bus": "virtio"}}


def migration(vm: str, *, node: str = "") -> dict[str, Any]:
    selector = {"nodeSelector": {"kubevirt.io/hostname": node}} if node else {}
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "Migration",
        "metadata": {"generateName": "my-migration"},
        "spec": {"selector": {"name": vm}, **selector},
    }


def shared_claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "shared",
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "64Mi"}},
        },
    }


def blank_disk(claim: str) -> dict[str, Any]:
    restricted = {"runAsNonRoot": True, "runAsUser": 107, "runAsGroup": 107, "fsGroup": 107, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {
        "name": "make",
        "image": GUEST_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", "truncate -s 16M /claim/disk.img.new && mv /claim/disk.img.new /claim/disk.img"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
    }
    pod = {
        "restartPolicy": "Never",
        "securityContext": restricted,
        "containers": [container],
        "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"make-{claim}"}, "spec": {"template": {"spec": pod}}}

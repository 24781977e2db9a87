"""Objects that the benchmark writes: about 4.4 KB with managedFields, mostly annotations.

The load generator replaces ``@NAME@``, ``@SHARD@`` (the name's last two digits) and ``@SEQUENCE@``, which is in an annotation and, if
possible, in the spec, so a write changes both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SEQUENCE: Final = "bench.example.com/0-sequence"
ANNOTATIONS: Final = 29
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """Input of the load generator for one kind."""

    group: str
    version: str
    plural: str
    template: Object
    patch: Object

    def collection(self, namespace: str) -> str:
        """Return the API path of this kind's collection in a namespace."""
        return f"/apis/{self.group}/{self.version}/namespaces/{namespace}/{self.plural}"

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write this kind's template and patch to files in ``directory``; return both paths."""
        directory.mkdir(parents=True, exist_ok=True)
        files = directory / f"{self.group}.template.json", directory / f"{self.group}.patch.json"
        for file, content in zip(files, (self.template, self.patch), strict=True):
            file.write_text(json.dumps(content, separators=(",", ":")))
        return files


def _metadata(annotations: int) -> Object:
    filler = "the quick brown fox jumps over the lazy dog, {:02}"
    return {
        "name": "@NAME@",
        "labels": {"app": "bench", "tier": "backend", "bench.example.com/shard": "@SHARD@"},
        "annotations": {
            SEQUENCE: "@SEQUENCE@",
            **{f"bench.example.com/annotation-{number:02}": filler.format(number) for number in range(annotations)},
        },
    }


def flunder(group: str) -> Kind:
    spec = {"reference": "flunder-@SEQUENCE@", "referenceType": "Flunder"}
    template = {"apiVersion": f"{group}/v1alpha1", "kind": "Flunder", "metadata": _metadata(ANNOTATIONS), "spec": spec}
    patch = {"metadata": {"annotations": {SEQUENCE: "@SEQUENCE@"}}, "spec": {"reference": "flunder-@SEQUENCE@"}}
    return Kind(group, "v1alpha1", "flunders", template, patch)


def machine() -> Kind:
    """Return the load generator's input for our kind VirtualMachine."""
    group = "kubevirt.io"
    spec = {
        "runStrategy": "Halted",
        "nodeSelector": {"bench.example.com/sequence": "@SEQUENCE@"},
        "tolerations": [{"key": "virtualization", "operator": "Exists", "effect": "NoSchedule"}],
        "domain": {
            "cpu": {"sockets": 1, "cores": 2, "threads": 1},
            "memory": {"guest": "2Gi"},
            "devices": {
                "disks": [
                    {"name": "root", "type": "PersistentVolumeClaim", "device": "disk", "source": {"name": "root-@NAME@"}, "bootOrder": 1},
                    {"name": "data", "type": "PersistentVolumeClaim", "device": "disk", "source": {"name": "data-@NAME@"}},
                ],
                "interfaces": [{"name": "default", "type": "masquerade", "model": "virtio"}],
            },
        },
    }
    template = {"apiVersion": f"{group}/v1alpha1", "kind": "VirtualMachine", "metadata": _metadata(12), "spec": spec}
    patch = {"metadata": {"annotations": {SEQUENCE: "@SEQUENCE@"}}, "spec": {"nodeSelector": {"bench.example.com/sequence": "@SEQUENCE@"}}}
    return Kind(group, "v1alpha1", "virtualmachines", template, patch)

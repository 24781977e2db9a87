"""``kubectl virt create``: print the manifest of a virtual machine, from flags or answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl.messages import Failure

Ask = Callable[[str], str]
NO_DISK: Final = "error: the machine needs a disk: --image or --claim"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's choices for the machine to create; empty or 0: none."""

    name: str = ""
    namespace: str = ""
    memory: str = ""
    cpus: int = 0
    image: str = ""
    image_path: str = ""
    claim: str = ""
    cloud_init: str = ""
    """File with the user data."""
    ssh_secret: str = ""
    run_strategy: str = ""


def manifest(wanted: Wanted, user_data: str = "") -> Object:
    """Return the wanted VirtualMachine's object; ``user_data`` is cloud-init's, the content of file ``wanted.cloud_init``."""
    disks: list[Object] = []
    if wanted.image:
        source = {"reference": wanted.image, **({"path": wanted.image_path} if wanted.image_path else {})}
        disks.append({"name": "root", "type": "Image", "source": source})
    if wanted.claim:
        disks.append({"name": "data" if disks else "root", "type": "PersistentVolumeClaim", "source": {"name": wanted.claim}})
    if user_data or wanted.ssh_secret:
        disks.append({"name": "cloud-init", "type": "CloudInitNoCloud", "source": {"userData": user_data or "#cloud-config\n"}})
    domain: Object = {"memory": {"guest": wanted.memory}, "devices": {"disks": disks}}
    if wanted.cpus:
        domain = {"cpu": {"cores": wanted.cpus}, **domain}
    spec: dict[str, Any] = {"domain": domain}
    if wanted.ssh_secret:
        key = {"source": {"secret": {"secretName": wanted.ssh_secret}}, "propagationMethod": {"noCloud": {}}}
        spec["accessCredentials"] = [{"sshPublicKey": key}]
    if wanted.run_strategy:
        spec["runStrategy"] = wanted.run_strategy
    metadata = {"name": wanted.name, **({"namespace": wanted.namespace} if wanted.namespace else {})}
    return {"apiVersion": VIRTUAL_MACHINES.api_version, "kind": VIRTUAL_MACHINES.kind, "metadata": metadata, "spec": spec}


def completed(wanted: Wanted, ask: Ask | None) -> Wanted:
    """Return ``wanted`` with name, memory (default 1Gi) and disk; ask for missing ones.

    Without ``ask``, only defaults. Raises Failure without a name or disk, or for a wrong amount of memory.
    """

    def answer(given: str, question: str, missing: str, default: str = "") -> str:
        found = given or (ask(f"{question}{f' [{default}]' if default else ''}: ").strip() if ask is not None else "") or default
        if not found:
            raise Failure(missing)
        return found

    name = answer(wanted.name, "Name", "error: the machine needs a name")
    amount = answer(wanted.memory, "Memory", "", "1Gi")
    _require_memory(amount)
    image = wanted.image
    if not image and not wanted.claim and ask is not None:
        image = ask("Image of the disk, such as registry.example/debian:13; empty for a claim: ").strip()
    claim = wanted.claim if image or wanted.claim else answer("", "PersistentVolumeClaim", NO_DISK) if ask is not None else ""
    if not image and not claim:
        raise Failure(NO_DISK)
    return replace(wanted, name=name, memory=amount, image=image, claim=claim)


def _require_memory(given: str) -> None:
    try:
        amount = quantity.parse(given)
    except ValueError:
        raise Failure(f"error: --memory: {given!r} is not a quantity, such as 512Mi, 1Gi or 1G") from None
    if not memory.MIN <= amount <= memory.MAX:
        raise Failure(f"error: --memory: {given} is not between {memory.MIN} and {memory.MAX}")


def run(wanted: Wanted) -> str:
    """Return the manifest as YAML; ask for what is missing on a terminal. Raises Failure."""
    wanted = completed(wanted, ask if sys.stdin is not None and sys.stdin.isatty() else None)
    try:
        user_data = Path(wanted.cloud_init).read_text(encoding="utf-8") if wanted.cloud_init else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"error: {wanted.cloud_init}: {error}") from error
    return yaml.safe_dump(manifest(wanted, user_data), sort_keys=False).rstrip()


def ask(question: str) -> str:
    """Ask on standard error, because standard output is the manifest; return the line with its line end, empty at the input's end."""
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline()

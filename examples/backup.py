"""Converts objects so that they can be created again.

    kubectl get vms,migrationpolicies,vmrs -A -o json | python examples/backup.py > objects.json

It writes values that depend on a machine's uid into its spec, because a new object has another uid. A machine that is off stays off.
Properties without a field are reported on standard error. It needs Python 3.11 and the checkout that contains it;
docs/operating/releases.md has the procedure.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the packages of this checkout

from apiserver.apis.meta.objects import Object, dig, name_of, namespace_of, uid_of
from apiserver.apis.virt.hardware import cloud_init
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec.described import domain_of
from launcher.domain.cloud_init import meta_data
from launcher.domain.document import domain_uuid

KEPT: Final = ("name", "namespace", "labels", "annotations")
"""The rest of the metadata belongs to the server, or names objects that may be gone."""
INITIATOR: Final = "iqn.2008-11.org.linux-kvm:"
"""QEMU's own initiator name, without the UUID."""


def main() -> None:
    """Read a List from standard input; print the List to create, and to standard error what each object loses."""
    items = json.load(sys.stdin)["items"]
    json.dump({"apiVersion": "v1", "kind": "List", "items": [_again(each) for each in items]}, sys.stdout, indent=1)
    for lost in (f"{namespace_of(each)}/{name_of(each)}: {why}" for each in items for why in _lost(each)):
        sys.stderr.write(f"{lost}\n")


def _again(found: Object) -> Object:
    metadata = {key: found["metadata"][key] for key in KEPT if key in found["metadata"]}
    spec = _new_spec(found) if found["kind"] == "VirtualMachine" else found["spec"]
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata, "spec": spec}


def _new_spec(vm: Object) -> Object:
    """Return a machine's spec for a new object, with the values that derived from the old uid; Halted if it is off."""
    spec: Object = copy.deepcopy(vm["spec"])
    if not power.decide(vm).on:
        spec["runStrategy"] = power.HALTED
    domain = spec.setdefault("domain", {})
    uid, identity = uid_of(vm), domain_uuid(uid_of(vm), domain_of(vm))
    if not dig(domain_of(vm), "firmware", "uuid"):
        domain.setdefault("firmware", {})["uuid"] = uid if _has_state(vm) else identity
    if spec.get("domainXML"):
        return spec
    for each in domain.setdefault("devices", {}).setdefault("interfaces", [{"name": "default"}]):
        each["mac"] = each.get("mac") or network.derived_mac(uid, each["name"])
    for disk in domain["devices"].get("disks") or ():
        if disk.get("type") == "ISCSI":
            disk["source"].setdefault("initiatorName", f"{INITIATOR}{identity}")
    for disk in _seeds(vm, spec):
        disk["source"]["metaData"] = meta_data(disk["type"], uid, name_of(vm), ()).decode()
    return spec


def _has_state(vm: Object) -> bool:
    """Return whether a claim keeps UEFI's or the TPM's state, in a directory named by its UUID."""
    return bool(dig(domain_of(vm), "firmware", "persistentState", "claimName"))


def _seeds(vm: Object, spec: Object) -> Iterator[Any]:
    """Yield the cloud-init disks of ``spec`` that need meta data; none with public keys, which exclude it."""
    if _brings_keys(vm):
        return
    for disk in dig(spec, "domain", "devices", "disks") or ():
        if disk.get("type") in cloud_init.TYPES and not any(key.startswith("metaData") for key in disk["source"]):
            yield disk


def _brings_keys(vm: Object) -> bool:
    methods = (dig(each, "sshPublicKey", "propagationMethod") or {} for each in vm["spec"].get("accessCredentials") or ())
    return any("noCloud" in each or "configDrive" in each for each in methods)


def _lost(found: Object) -> Iterator[str]:
    if found["kind"] != "VirtualMachine":
        return
    if _has_state(found) and not dig(domain_of(found), "firmware", "uuid"):
        yield f"the guest sees another UUID than {domain_uuid(uid_of(found), {})}: by the one it has now its state of UEFI or TPM is found"
    if _brings_keys(found):
        yield "cloud-init has a first boot again, because public keys and an instance id cannot both be given"
    if found["spec"].get("domainXML"):
        yield "its XML is as it was: MAC addresses that it does not say, and an instance id, are other ones"


if __name__ == "__main__":
    main()

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import layout, shape
from apiserver.apis.virt.rights import pod_rights
from apiserver.apis.virt.rights.pod_rights import Content
from apiserver.apis.virt.spec import hot_plug
from controller.reconcilers import disk_claims
from controller.reconcilers.launcher_pods.launcher_pod import attachment_pod, launcher_pod, target_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from tests import hostile
from tests.unit.charts import forbidden_pods
from tests.unit.controller.reconcilers.builders import a_migration, a_vm
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import FILESYSTEMS, MOVE, SETTINGS

XML: Final = """<domain type="kvm"><name>x</name><memory>65536</memory><os><type>hvm</type></os></domain>"""
DISKS: Final = (
    {"type": "PersistentVolumeClaim", "source": {"name": "myVolumeClaim"}},
    {"source": {"name": "untyped"}},
    {"type": "Image", "source": {"reference": "registry.example/os:v1"}},
    {"type": "Secret", "source": {"name": "answers"}},
    {"type": "ConfigMap", "source": {"name": "settings"}},
    {"type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "first"}, "networkDataSecretRef": {"name": "net", "key": "k"}}},
    {"type": "CloudInitConfigDrive", "source": {"userData": "#cloud-config"}},
    {"device": "cdrom"},
    {"type": "NBD", "source": {"host": "nbd.example"}},
    {"type": "ISCSI", "source": {"targetPortal": "a", "iqn": "iqn.2026-01.example", "secretRef": {"name": "chap"}}},
    {
        "type": "PersistentVolumeClaim",
        "source": {
            "name": "filled",
            "import": {"http": {"url": "https://h/", "secretRef": {"name": "login"}, "caConfigMapRef": {"name": "authorities"}}},
        },
    },
)
VM: Final = a_vm(
    accessCredentials=[{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}],
    domain={
        "memory": {"guest": "128Mi"},
        "firmware": {
            "persistentState": {"claimName": "State"},
            "kernelBoot": {"container": {"image": "registry.example/kernel:v1", "kernelPath": "/vmlinuz"}},
        },
        "devices": {"disks": list(DISKS)},
    },
)


def made(vm: Object) -> tuple[Object, Object]:
    claims = dict.fromkeys(disk_claims.claims_of(vm))
    pods = (launcher_pod(vm, 1, claims, SETTINGS, Placement()), target_pod(vm, a_migration(), 1, claims, SETTINGS, MOVE))
    for each in pods:
        each["metadata"]["uid"] = "uid-1"
    return copy.deepcopy(pods)


def objections(vm: Object, pod: Object | None, name: str = "", uid: str = "uid-1") -> list[str]:
    return pod_rights.objections(vm, pod, name or (pod or {"metadata": {"name": "p"}})["metadata"]["name"], uid)


def test_edit_of_a_running_machine_gives_its_pods_no_more_rights() -> None:
    """A Secret of the edit must not appear before the restart."""
    desired = copy.deepcopy(VM)
    desired["spec"]["domain"]["devices"]["disks"] = [{"type": "Secret", "source": {"name": "new"}}]
    desired["spec"]["accessCredentials"] = []
    edited = {**desired, "status": {"phase": "Running", "running": {"generation": 1, **VM["spec"]}}}
    assert pod_rights.named_by(edited) == pod_rights.named_by(VM)
    for pod in made(VM):
        assert objections(edited, pod) == []
    for pod in made(desired):
        assert len(objections(edited, pod)) == 1


def test_a_pod_may_mount_the_claim_for_the_guests_memory() -> None:
    vm = copy.deepcopy(VM)
    vm["spec"]["managedSave"] = {"claimName": "Memory"}
    assert pod_rights.named_by(vm) - pod_rights.named_by(VM) == {pod_rights.Content("PersistentVolumeClaim", "memory")}
    assert [objections(vm, pod) for pod in made(vm)] == [[], []]
    assert all(objections(VM, pod) for pod in made(vm))


def a_full_machine() -> Object:
    vm = hostile.a_full_virtual_machine()
    vm["metadata"]["uid"] = "vm-uid"
    return vm


@pytest.mark.parametrize("vm", [VM, a_full_machine(), *forbidden_pods.examples()], ids=lambda vm: vm["metadata"]["name"])
def test_every_pod_virt_controller_makes_is_allowed(vm: Object) -> None:
    for pod in made(vm):
        assert objections(vm, pod) == []


def test_pod_mounts_exactly_the_contents_its_machine_names() -> None:
    mounted = {
        Content("PersistentVolumeClaim", "myvolumeclaim"),
        Content("PersistentVolumeClaim", "untyped"),
        Content("PersistentVolumeClaim", "filled"),
        Content("PersistentVolumeClaim", "state"),
        Content("Image", "registry.example/os:v1"),
        Content("Image", "registry.example/kernel:v1"),
        *(Content("Secret", each) for each in ("answers", "first", "net", "keys", "login", "chap")),
        *(Content("ConfigMap", each) for each in ("settings", "authorities")),
    }
    assert pod_rights.named_by(VM) == mounted
    pod = made(VM)[0]
    for each in mounted:
        assert str(each).rpartition(" ")[2] in str(pod["spec"]["volumes"])


def test_pod_may_mount_the_file_systems_its_machine_names() -> None:
    assert pod_rights.named_by(FILESYSTEMS) == {
        *(Content("PersistentVolumeClaim", each) for each in ("shared", "other")),
        Content("ConfigMap", "settings"),
        Content("Secret", "passwords"),
    }
    pod = made(FILESYSTEMS)[0]
    assert objections(FILESYSTEMS, pod) == []
    assert len(objections({**FILESYSTEMS, "spec": {"domain": {}}}, pod)) == 4


def test_a_machine_without_disks_names_nothing() -> None:
    assert pod_rights.named_by(a_vm()) == pod_rights.named_by({"metadata": {"name": "x"}}) == frozenset()


def test_xml_without_disks_names_nothing_and_bad_xml_is_no_error() -> None:
    for text in (XML, "<domain", ""):
        assert pod_rights.named_by(a_vm(domainXML=text)) == frozenset()


Change = Callable[[Object], Any]


def volume(source: Object) -> Change:
    return lambda pod: pod["spec"]["volumes"].append({"name": "stolen", **source})


def exchange(kind: str, field: str, value: str) -> Change:
    def change(pod: Object) -> None:
        next(each for each in pod["spec"]["volumes"] if kind in each)[kind][field] = value

    return change


ROOT = "kube-root-ca.crt"
NAMED_BY_NOBODY = "the virtual machine does not name it"
NO_SUCH = "pods of virtual machines may not have such a volume"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (exchange("persistentVolumeClaim", "claimName", "database"), f"PersistentVolumeClaim database as volume disk-0: {NAMED_BY_NOBODY}"),
        (exchange("image", "reference", "evil.example/os:v1"), f"Image evil.example/os:v1 as volume disk-2: {NAMED_BY_NOBODY}"),
        (
            volume({"persistentVolumeClaim": {"claimName": "database"}}),
            f"PersistentVolumeClaim database as volume stolen: {NAMED_BY_NOBODY}",
        ),
        (volume({"projected": {"sources": [{"secret": {"name": "password"}}]}}), f"Secret password as volume stolen: {NAMED_BY_NOBODY}"),
        (
            volume({"projected": {"sources": [{"secret": {"name": "keys"}}, {"secret": {"name": "password"}}]}}),
            f"Secret password as volume stolen: {NAMED_BY_NOBODY}",
        ),
        (volume({"projected": {"sources": [{"configMap": {"name": "keys"}}]}}), f"ConfigMap keys as volume stolen: {NAMED_BY_NOBODY}"),
        (volume({"projected": {"sources": [{"secret": {"name": "settings"}}]}}), f"Secret settings as volume stolen: {NAMED_BY_NOBODY}"),
        (volume({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}), f"serviceAccountToken as volume stolen: {NO_SUCH}"),
        (volume({"projected": {"sources": [{"secret": {"name": "keys"}, "downwardAPI": {}}]}}), f"downwardAPI as volume stolen: {NO_SUCH}"),
        (volume({"secret": {"secretName": "keys"}}), f"secret as volume stolen: {NO_SUCH}"),
        (volume({"hostPath": {"path": "/"}}), f"hostPath as volume stolen: {NO_SUCH}"),
        (volume({"csi": {"driver": "secrets-store.csi.k8s.io"}}), f"csi as volume stolen: {NO_SUCH}"),
        (volume({"ephemeral": {"volumeClaimTemplate": {}}}), f"ephemeral as volume stolen: {NO_SUCH}"),
    ],
)
def test_pod_mounting_contents_its_machine_lacks_is_refused(change: Change, words: str) -> None:
    for pod in made(VM):
        change(pod)
        assert objections(VM, pod) == [f'pod "{pod["metadata"]["name"]}" mounts {words}']


def test_downward_api_fields_are_mounted_on_request_only() -> None:
    disk = {"type": "DownwardAPI", "source": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    asking = a_vm(domain={"devices": {"disks": [disk]}})
    for pod in made(asking):
        assert objections(asking, pod) == []
        assert objections(a_vm(), pod) == [f'pod "{pod["metadata"]["name"]}" mounts downwardAPI as volume disk-0: {NO_SUCH}']


def test_token_belongs_to_the_service_account_the_machine_names() -> None:
    vm = a_vm(domain={"devices": {"disks": [{"type": "ServiceAccount", "source": {"name": "robot"}}]}})
    fields = a_vm(domain={"devices": {"disks": [{"type": "DownwardAPI", "source": {}}, {"type": "ConfigMap", "source": {"name": ROOT}}]}})
    for pod in made(vm):
        mounts = f'pod "{pod["metadata"]["name"]}" mounts'
        assert objections(vm, pod) == []
        assert objections(fields, pod) == [f"{mounts} serviceAccountToken as volume disk-0: {NO_SUCH}"]
        pod["spec"]["serviceAccountName"] = "cluster-admin"
        assert objections(vm, pod) == [f"{mounts} ServiceAccount cluster-admin as volume disk-0: {NAMED_BY_NOBODY}"]
        del pod["spec"]["serviceAccountName"]
        assert objections(vm, pod) == [f"{mounts} ServiceAccount default as volume disk-0: {NAMED_BY_NOBODY}"]


def test_a_source_of_several_kinds_is_looked_at_whole() -> None:
    allowed = [pod_rights.Content("ServiceAccount", "default"), pod_rights.Content("DownwardAPI", "")]
    for first in ("downwardAPI", "serviceAccountToken"):
        source = {first: {}, "secret": {"name": "stolen"}}
        assert list(pod_rights._excess_projected(source, "default", allowed)) == [("Secret stolen", NAMED_BY_NOBODY)]


def test_a_volume_of_several_kinds_is_looked_at_whole() -> None:
    pod = made(VM)[0]
    pod["spec"]["volumes"].append({"name": "stolen", "emptyDir": {}, "projected": {"sources": []}, "hostPath": {}, "nfs": {}})
    assert [each.rpartition(" mounts ")[2] for each in objections(VM, pod)] == [
        f"{each} as volume stolen: {NO_SUCH}" for each in ("hostPath", "nfs")
    ]


def test_everything_that_is_wrong_is_named_at_once() -> None:
    pod = made(VM)[0]
    for each in ("a", "b"):
        volume({"persistentVolumeClaim": {"claimName": each}})(pod)
    pod["metadata"]["ownerReferences"] = []
    assert len(objections(VM, pod)) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(namespace="elsewhere"),
        lambda pod: pod["metadata"].update(uid="uid-2"),
        lambda pod: pod["metadata"].pop("uid"),
        lambda pod: pod["metadata"].update(name="another"),
        lambda pod: pod["metadata"].update(name="zzz"),
        lambda pod: pod["metadata"].update(namespace="aaa"),
    ],
)
def test_a_pod_of_another_namespace_name_or_uid_is_not_the_one(change: Change) -> None:
    pod = made(VM)[0]
    name = pod["metadata"]["name"]
    change(pod)
    assert objections(VM, pod, name) == [f'no pod "{name}" in namespace "{VM["metadata"]["namespace"]}" has this uid']


def test_a_pod_that_is_not_there_is_refused() -> None:
    assert objections(VM, None) == [f'no pod "p" in namespace "{VM["metadata"]["namespace"]}" has this uid']
    assert pod_rights.objections({"metadata": {}}, None, "", "") == ['no pod "" in namespace "" has this uid']


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{"kind": "VirtualMachine", "name": "testvm", "uid": "another", "controller": True}],
        [{"kind": "VirtualMachine", "name": "testvm", "uid": VM["metadata"]["uid"]}],
    ],
)
def test_a_pod_that_the_machine_does_not_control_is_refused(owners: list[Object]) -> None:
    pod = made(VM)[0]
    pod["metadata"]["ownerReferences"] = owners
    assert objections(VM, pod) == [f'the controller of pod "{pod["metadata"]["name"]}" is not this virtual machine']


def test_another_machines_pod_is_refused_whatever_it_mounts() -> None:
    other = {**VM, "metadata": {**VM["metadata"], "name": "other", "uid": "uid-of-other"}}
    pod = made(VM)[0]
    assert objections(other, pod) == [f'the controller of pod "{pod["metadata"]["name"]}" is not this virtual machine']


def a_move(made: str, uid: str = "uid-2", phase: str = "Running", name: str = "vm1") -> dict[str, Any]:
    return {
        "metadata": {"name": "move", "creationTimestamp": made},
        "spec": {"selector": {"name": name}},
        "status": {"phase": phase, "targetPodUID": uid},
    }


def test_guest_arrives_only_by_its_own_unfinished_migration() -> None:
    vm = {"metadata": {"name": "vm1", "creationTimestamp": "2001-02-03T04:05:06Z"}}
    same, later, earlier = "2001-02-03T04:05:06Z", "2001-02-03T10:05:06Z", "2001-02-03T04:05:05Z"
    assert pod_rights.brings(a_move(same), vm, "uid-2")
    assert pod_rights.brings(a_move(later), vm, "uid-2")
    assert not pod_rights.brings(a_move(later), vm, "uid-3")
    assert not pod_rights.brings(a_move(later, phase="Failed"), vm, "uid-2")
    assert not pod_rights.brings(a_move(later, name="vm2"), vm, "uid-2")
    assert not pod_rights.brings(a_move(later, name="vm0"), vm, "uid-2")
    assert not pod_rights.brings(a_move(later), vm, "uid-1")
    assert not pod_rights.brings(a_move(earlier), vm, "uid-2"), "it was of a machine that had this name before"


@pytest.mark.parametrize(
    ("status", "strange"),
    [
        ({"podIP": "10.244.1.7", "podIPs": [{"ip": "10.244.1.7"}, {"ip": "fd00:10::7"}]}, []),
        ({"podIP": "10.244.1.7"}, ["'fd00:10::7'"]),
        ({"podIPs": [{"ip": "fd00:10::7"}]}, ["'10.244.1.7'"]),
        ({"podIPs": [{}, {"ip": None}]}, ["'10.244.1.7'", "'fd00:10::7'"]),
        ({}, ["'10.244.1.7'", "'fd00:10::7'"]),
    ],
)
def test_connections_are_forwarded_to_target_addresses_only(status: Object, strange: list[str]) -> None:
    pod = {"metadata": {"name": "p", "uid": "uid-1"}, "status": status}
    addresses = ["10.244.1.7", "fd00:10::7"]
    assert pod_rights.strange_addresses(pod, "uid-1", addresses) == [f'pod "p" does not have the address {each}' for each in strange]
    assert pod_rights.strange_addresses(pod, "uid-1", ["x" * 999]) == [f'pod "p" does not have the address \'{"x" * 79}']
    gone = ["the pod with these addresses does not exist"]
    for other in ({**pod, "metadata": {"name": "p", "uid": "uid-2"}}, {**pod, "metadata": {"name": "p", "uid": "uid-0"}}, None):
        assert pod_rights.strange_addresses(other, "uid-1", addresses) == gone
    assert pod_rights.strange_addresses(None, "", addresses) == gone


def test_non_pod_addresses_from_a_kubelet_are_not_the_targets() -> None:
    stolen = ["169.254.169.254", "fd00:ec2::254", "127.0.0.1"]
    status = {"podIP": stolen[0], "podIPs": [{"ip": each} for each in [*stolen, "10.244.1.7"]]}
    pod = {"metadata": {"name": "p", "uid": "uid-1"}, "status": status}
    found = pod_rights.strange_addresses(pod, "uid-1", [*stolen, "10.244.1.7"])
    assert found == [f'pod "p" does not have the address {each!r}' for each in stolen]


@pytest.mark.parametrize("kind", [*shape.VOLUMES, "hostPath", "secret", "configMap", "csi", "ephemeral", "downwardAPI", "nfs", "gitRepo"])
def test_a_machines_pod_has_volumes_of_the_shapes_kinds_alone(kind: str) -> None:
    vm = a_vm()
    pod = launcher_pod(vm, 1, {}, SETTINGS, Placement(kvm=False))
    pod["metadata"]["uid"] = "uid"
    pod["spec"]["volumes"].append({"name": "another", kind: {}})
    found = pod_rights.objections(vm, pod, pod["metadata"]["name"], "uid")
    assert any("pods of virtual machines may not have such a volume" in each for each in found) is (kind not in shape.VOLUMES)


@pytest.mark.parametrize("source", [*shape.PROJECTED, "clusterTrustBundle", "podCertificate"])
def test_machines_pod_projects_only_the_shapes_sources(source: str) -> None:
    vm = a_vm(domain={"devices": {"disks": [{"type": "ServiceAccount", "source": {"name": "robot"}}]}})
    pod = launcher_pod(vm, 1, {}, SETTINGS, Placement(kvm=False))
    pod["metadata"]["uid"] = "uid"
    pod["spec"]["volumes"].append({"name": "another", "projected": {"sources": [{source: {}}]}})
    found = pod_rights.objections(vm, pod, pod["metadata"]["name"], "uid")
    assert any("pods of virtual machines may not have such a volume" in each for each in found) is (source not in shape.PROJECTED)


CLAIMED: Final = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
IMAGED: Final = {"name": "data", "device": "cdrom", "type": "Image", "source": {"reference": "registry/tools:1", "path": "disk/a.iso"}}


def an_attachment(disk: Object) -> tuple[Object, Object, Object]:
    vm = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"disks": [disk]}})
    vm["status"] = {**vm.get("status", {}), "phase": "Running", "nodeName": "node1", "podUID": "uid-of-guest"}
    (full,) = hot_plug.kept(vm)
    pod = copy.deepcopy(attachment_pod(vm, full, SETTINGS))
    pod["metadata"]["uid"], pod["spec"]["nodeName"] = "uid-1", "node1"
    claim = {"claimName": "data"} if disk is CLAIMED else {}
    return vm, pod, {"name": "data", **claim, "hotplugVolume": {"attachPodName": pod["metadata"]["name"], "attachPodUID": "uid-1"}}


def spoil(pod: Object, how: str) -> None:
    (container,) = pod["spec"]["containers"]
    mount = next(each for each in container["volumeMounts"] if each["mountPath"] == layout.ATTACHMENT_DIRECTORY)
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
    match how:
        case "namespace" | "name" | "uid":
            pod["metadata"][how] = "other"
        case "owner":
            pod["metadata"]["ownerReferences"] = []
        case "node0" | "node2":
            pod["spec"]["nodeName"] = how
        case "subPath" | "subPathExpr" | "mountPath":
            mount[how] = "/part"
        case "volume":
            mount["name"] = "absent"
        case "/zzz":
            mount["mountPath"] = how
        case "other" | "a":
            container["name"] = how
        case "content":
            content = volume.pop("persistentVolumeClaim", None) or volume.pop("image")
            volume |= {"persistentVolumeClaim": {"claimName": "other"}} if "claimName" in content else {"image": {"reference": "other"}}
        case _:
            pod["spec"]["volumes"].append({"name": "more", "persistentVolumeClaim": {"claimName": "database"}})


@pytest.mark.parametrize("disk", [CLAIMED, IMAGED])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("namespace", "no pod"),
        ("name", "no pod"),
        ("uid", "no pod"),
        ("owner", "the controller of pod"),
        *((each, f"is on node {each}, and not on the guest's node") for each in ("node0", "node2")),
        *((each, f"does not mount {{}} at {layout.ATTACHMENT_DIRECTORY}") for each in ("subPath", "subPathExpr", "mountPath", "volume")),
        *((each, f"does not mount {{}} at {layout.ATTACHMENT_DIRECTORY}") for each in ("/zzz", "other", "a")),
        ("content", f"does not mount {{}} at {layout.ATTACHMENT_DIRECTORY}"),
        ("more", "mounts PersistentVolumeClaim database as volume more: the virtual machine does not name it"),
    ],
)
def test_attachment_pod_has_only_the_content_of_its_disk(disk: Object, how: str, why: str) -> None:
    vm, pod, entry = an_attachment(disk)
    assert pod_rights.attachment_objections(vm, entry, pod) == []
    assert pod_rights.attachment_objections(vm, entry, None) != []
    spoil(pod, how)
    found = pod_rights.attachment_objections(vm, entry, pod)
    content = "PersistentVolumeClaim data" if disk is CLAIMED else "Image registry/tools:1"
    assert any(why.format(content) in each for each in found), found


@pytest.mark.parametrize(("path", "claim"), [(layout.ATTACHMENT_DEVICE, "other"), (f"{layout.DEVICES_DIRECTORY}/more", "data")])
def test_attachment_of_a_block_claim_is_its_device(path: str, claim: str) -> None:
    vm, pod, entry = an_attachment(CLAIMED)
    (container,) = pod["spec"]["containers"]
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == layout.ATTACHMENT_VOLUME)
    container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] != volume["name"]]
    container["volumeDevices"] = [{"name": volume["name"], "devicePath": layout.ATTACHMENT_DEVICE}]
    assert pod_rights.attachment_objections(vm, entry, pod) == []
    container["volumeDevices"][0]["devicePath"], volume["persistentVolumeClaim"]["claimName"] = path, claim
    assert "does not mount PersistentVolumeClaim data" in " ".join(pod_rights.attachment_objections(vm, entry, pod))


BLANK: Final = {"name": "data", "type": "EmptyDisk", "source": {"size": "1Mi"}}


@pytest.mark.parametrize("disk", [BLANK, {**IMAGED, "device": "disk"}])
@pytest.mark.parametrize("content", [{"persistentVolumeClaim": {"claimName": "data"}}, {"image": {"reference": "registry/tools:1"}}])
def test_overlay_is_in_an_empty_directory(disk: Object, content: Object) -> None:
    """In the claim or image, the guest could write to what it may only read."""
    vm, pod, entry = an_attachment(disk)
    assert pod_rights.attachment_objections(vm, entry, pod) == []
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == layout.ATTACHMENT_OVERLAY_VOLUME)
    del volume["emptyDir"]
    volume |= content
    found = pod_rights.attachment_objections(vm, entry, pod)
    assert any(f"does not mount emptyDir at {layout.ATTACHMENT_OVERLAY_DIRECTORY}" in each for each in found)


def test_attachment_of_an_image_is_of_a_disk() -> None:
    vm, pod, right = an_attachment(IMAGED)
    (found, *_) = pod_rights.attachment_objections(vm, {**right, "name": "other"}, pod)
    assert found == 'disk "other" with PersistentVolumeClaim None is not in the spec'


@pytest.mark.parametrize("entry", [{"name": "other"}, {"name": "a"}, {"claimName": "other"}, {"claimName": None}])
def test_attachment_is_of_a_disk_and_its_claim(entry: Object) -> None:
    vm, pod, right = an_attachment(CLAIMED)
    (found, *_) = pod_rights.attachment_objections(vm, {**right, **entry}, pod)
    assert found.startswith(f'disk "{entry.get("name", "data")}" with PersistentVolumeClaim')
    assert found.endswith("is not in the spec")


IMPORTED: Final = {
    "name": "data",
    "type": "PersistentVolumeClaim",
    "source": {
        "name": "data",
        "import": {"http": {"url": "https://server/x", "secretRef": {"name": "login"}, "caConfigMapRef": {"name": "ca"}}},
    },
}


@pytest.mark.parametrize(("old", "new"), [("login", "another"), ("ca", "another-ca")])
def test_attachment_with_an_import_has_only_its_credentials(old: str, new: str) -> None:
    vm, pod, entry = an_attachment(IMPORTED)
    entry["claimName"] = "data"
    assert pod_rights.attachment_objections(vm, entry, pod) == []
    for volume in pod["spec"]["volumes"]:
        for source in (volume.get("projected") or {}).get("sources") or ():
            for reference in source.values():
                reference["name"] = new if reference["name"] == old else reference["name"]
    (found,) = pod_rights.attachment_objections(vm, entry, pod)
    assert f"{new} as volume" in found
    assert found.endswith("the virtual machine does not name it")
    vm, plain, entry = an_attachment(CLAIMED)
    plain["spec"]["volumes"] += [each for each in pod["spec"]["volumes"] if "projected" in each]
    assert len(pod_rights.attachment_objections(vm, entry, plain)) == 2

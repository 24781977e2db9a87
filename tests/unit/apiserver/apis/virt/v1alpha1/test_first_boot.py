from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from apiserver.apis.meta import decoding
from apiserver.apis.virt.hardware import cloud_init
from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.spec import downward_api
from apiserver.apis.virt.v1alpha1 import access_credentials, defaults, types, validation

DISKS = "spec.domain.devices.disks"
SEED: dict[str, Any] = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "#cloud-config"}}
DRIVE: dict[str, Any] = {"name": "drive", "type": "CloudInitConfigDrive", "source": {}}
FILES: dict[str, Any] = {"name": "files", "type": "Secret", "source": {"name": "s"}}
KEYS = "spec.accessCredentials[0].sshPublicKey"


def a_vm(*disks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "kind": "VirtualMachine",
        "metadata": {"name": "vm1", "namespace": "acc"},
        "spec": {"domain": {"devices": {"disks": list(disks)}}, **spec},
    }


def a_credential(*methods: str, secret: str = "keys") -> dict[str, Any]:
    way: dict[str, Any] = {each: {} for each in methods}
    return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": way}}


def errors(obj: dict[str, Any]) -> list[str]:
    obj = copy.deepcopy(obj)
    unknown, found = decoding.read(types.VirtualMachine, obj)
    assert (list(unknown), list(found)) == ([], [])
    defaults.default_virtual_machine(obj)
    return [str(each) for each in validation.validate_virtual_machine(obj)]


def of_source(kind: str = "CloudInitNoCloud", **source: Any) -> list[str]:
    return [each.removeprefix(f"{DISKS}[0].source.") for each in errors(a_vm({"name": "seed", "type": kind, "source": source}))]


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "disk",
    [
        SEED,
        DRIVE,
        FILES,
        {**FILES, "type": "ConfigMap", "source": {"name": "a.b", "volumeLabel": "OEMDRV"}},
        {"name": "fields", "type": "DownwardAPI", "source": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {**SEED, "device": "disk"},
        {**SEED, "device": "disk", "target": {"bus": "scsi"}},
        {**SEED, "readOnly": True, "bootOrder": 1, "serial": "seed"},
        {**SEED, "source": {"userDataBase64": in_base64(b"\xff\x00"), "networkDataSecretRef": {"name": "n", "key": "a.b_c-d"}}},
        {**SEED, "source": {"userDataBase64": "aGVs\nbG8=\n", "metaData": ""}},
        {**SEED, "source": {"userData": "x" * cloud_init.MAX_INLINE}},
    ],
    ids=lambda each: str(each)[:60],
)
def test_disks_for_cloud_init_and_others_are_accepted(disk: dict[str, Any]) -> None:
    assert errors(a_vm(disk)) == []


@pytest.mark.parametrize(("each", "device"), [(SEED, "disk"), (DRIVE, "disk"), (FILES, "cdrom")], ids=["seed", "drive", "files"])
def test_seed_disks_default_to_read_only_disk_or_cdrom(each: dict[str, Any], device: str) -> None:
    (defaulted,) = hardware.defaulted({"devices": {"disks": [each]}})
    (disk,) = hardware.defaulted({"devices": {"disks": [{**each, "device": "disk"}]}})
    (drive,) = hardware.defaulted({"devices": {"disks": [{**each, "device": "cdrom"}]}})
    assert defaulted == (disk if device == "disk" else drive)
    assert (disk["device"], disk["readOnly"], disk["target"]["bus"]) == ("disk", True, "virtio")
    assert (drive["device"], drive["readOnly"], drive["target"]["bus"]) == ("cdrom", True, "sata")


@pytest.mark.parametrize("datum", ["userData", "networkData", "metaData"])
def test_each_datum_is_given_in_one_way(datum: str) -> None:
    every: dict[str, Any] = {datum: "x", f"{datum}Base64": "", f"{datum}SecretRef": {"name": "s"}}
    assert of_source(**every) == [
        f"{datum}Base64: Forbidden: may not be set together with {datum}",
        f"{datum}SecretRef: Forbidden: may not be set together with {datum}",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"userDataBase64": "no base64"}, 'userDataBase64: Invalid value: "…": must be base64'),
        ({"userDataBase64": "YWJj*"}, 'userDataBase64: Invalid value: "…": must be base64'),
        ({"metaDataBase64": "YWJ"}, 'metaDataBase64: Invalid value: "…": must be base64'),
        ({"userData": "x" * (cloud_init.MAX_INLINE + 1)}, "userData: Too long: may not be more than 65536 bytes"),
        (
            {"networkDataBase64": in_base64(bytes(cloud_init.MAX_INLINE + 1))},
            "networkDataBase64: Too long: may not be more than 65536 bytes",
        ),
        ({"userDataSecretRef": {"name": ""}}, "userDataSecretRef.name: Required value: the name of a Secret in the same namespace"),
        ({"userDataSecretRef": {"name": "s", "key": "k" * 254}}, "userDataSecretRef.key: Too long: may not be more than 253 bytes"),
        ({"name": "s"}, "name: Forbidden: may not be set for a disk of type CloudInitNoCloud"),
        ({"volumeLabel": "l"}, "volumeLabel: Forbidden: may not be set for a disk of type CloudInitNoCloud"),
    ],
    ids=lambda each: str(each)[:60],
)
def test_errors_of_first_boot_disks_do_not_repeat_the_data(source: dict[str, Any], expected: str) -> None:
    assert of_source(**source) == [expected]


@pytest.mark.parametrize("key", ["", "..", "..data", ".", "a/b", "a b"])
def test_a_key_that_no_secret_can_have_is_refused(key: str) -> None:
    (found,) = of_source(userDataSecretRef={"name": "s", "key": key})
    assert found.startswith("userDataSecretRef.key: Invalid value")


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("Secret", {}, "name: Required value: the name of a Secret in the same namespace"),
        ("ConfigMap", {}, "name: Required value: the name of a ConfigMap in the same namespace"),
        ("Secret", {"name": "s", "userData": "x"}, "userData: Forbidden: may not be set for a disk of type Secret"),
        (
            "ConfigMap",
            {"name": "c", "volumeLabel": "x" * 17},
            "volumeLabel: Invalid value: \"xxxxxxxxxxxxxxxxx\": must be 1 to 16 alphanumeric characters, '_', '.' or '-'",
        ),
        (
            "ConfigMap",
            {"name": "c", "volumeLabel": ""},
            "volumeLabel: Invalid value: \"\": must be 1 to 16 alphanumeric characters, '_', '.' or '-'",
        ),
    ],
)
def test_a_disk_of_files_names_what_they_are_taken_from(kind: str, source: dict[str, Any], expected: str) -> None:
    assert of_source(kind, **source) == [expected]


def of_item(**item: Any) -> list[str]:
    found = of_source("DownwardAPI", items=[{"path": "x", **item}])
    return [each.removeprefix("items[0].") for each in found]


NAME: dict[str, Any] = {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize(
    "item",
    [
        *({"fieldRef": {"fieldPath": each}} for each in downward_api.FIELDS),
        {"fieldRef": {"fieldPath": "metadata.labels['app']"}},
        {"fieldRef": {"fieldPath": "metadata.annotations['example.com/Role']"}},
        *({"resourceFieldRef": {"resource": each}} for each in ("limits.cpu", "limits.memory", "limits.ephemeral-storage")),
        *({"resourceFieldRef": {"resource": each}} for each in ("requests.cpu", "requests.memory", "requests.ephemeral-storage")),
        {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
        {"resourceFieldRef": {"resource": "limits.memory", "divisor": 1}},
        {"resourceFieldRef": {"resource": "requests.ephemeral-storage", "divisor": "1Gi"}},
        {**NAME, "path": "a" * cloud_init.MAX_FILE_NAME},
    ],
    ids=str,
)
def test_fields_and_resources_may_be_asked_for(item: dict[str, Any]) -> None:
    assert of_item(**item) == []


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({}, "fieldRef: Required value: or resourceFieldRef"),
        ({**NAME, "resourceFieldRef": {"resource": "limits.cpu"}}, "resourceFieldRef: Forbidden: may not be set together with fieldRef"),
        (
            {"fieldRef": {"fieldPath": "spec.nodeName"}},
            'fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: "metadata.',
        ),
        ({"fieldRef": {"fieldPath": "metadata.labels['']"}}, "fieldRef.fieldPath: Invalid value: \"metadata.labels['']\""),
        ({"fieldRef": {"fieldPath": "metadata.labels['a b']"}}, "fieldRef.fieldPath: Invalid value: \"metadata.labels['a b']\""),
        ({"fieldRef": {"fieldPath": "metadata.labels['a']['b']"}}, "fieldRef.fieldPath: Unsupported value"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Mi"}}, 'resourceFieldRef.divisor: Unsupported value: "1Mi"'),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1m"}}, 'resourceFieldRef.divisor: Unsupported value: "1m"'),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "2Mi"}}, 'resourceFieldRef.divisor: Unsupported value: "2Mi"'),
        *(({**NAME, "path": each}, "path: Invalid value") for each in ("", ".", "..", "..x", "a/b", "a b", "ä")),
        ({**NAME, "path": "a" * (cloud_init.MAX_FILE_NAME + 1)}, "path: Too long"),
    ],
    ids=lambda each: str(each)[:60],
)
def test_items_that_no_kubelet_mounts_are_refused(item: dict[str, Any], expected: str) -> None:
    found = of_item(**item)
    assert found
    assert all(each.startswith(expected) for each in found)


def test_a_disk_of_fields_has_files_of_names_of_their_own() -> None:
    for source in ("{}", '{"items": null}', '{"items": []}'):
        assert of_source("DownwardAPI", **json.loads(source)) == ["items: Required value: the files of the disk"]
    assert of_source("DownwardAPI", items=[{"path": each, **NAME} for each in "aba"]) == ['items[2].path: Duplicate value: "a"']
    assert of_source("DownwardAPI", items=[{"path": "a", **NAME}], name="x", volumeLabel="") == [
        "name: Forbidden: may not be set for a disk of type DownwardAPI",
        "volumeLabel: Invalid value: \"\": must be 1 to 16 alphanumeric characters, '_', '.' or '-'",
    ]
    many = [{"path": str(each), **NAME} for each in range(downward_api.MAX_ITEMS + 1)]
    (told,) = of_source("DownwardAPI", items=many)
    assert told.startswith("items: Too many")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"name": "robot"}, ""),
        ({"name": "robot", "audience": "https://vault.example", "expirationSeconds": 600, "volumeLabel": "token"}, ""),
        ({"name": "robot", "expirationSeconds": 1 << 32}, ""),
        ({}, "name: Required value: the name of a ServiceAccount in the same namespace"),
        ({"name": "Robot"}, 'name: Invalid value: "Robot"'),
        ({"name": "robot", "expirationSeconds": 599}, "expirationSeconds: Invalid value: 599: must be greater than or equal to 600"),
        ({"name": "robot", "expirationSeconds": (1 << 32) + 1}, "expirationSeconds: Invalid value: 4294967297: must be less than or equal"),
        ({"name": "robot", "audience": ""}, "audience: Required value: or omit it"),
        ({"name": "robot", "audience": "a\nb"}, "audience: Invalid value"),
        ({"name": "robot", "audience": "a" * 254}, "audience: Too long"),
        ({"name": "robot", "volumeLabel": ""}, "volumeLabel: Invalid value"),
        ({"name": "robot", "items": []}, "items: Forbidden: may not be set for a disk of type ServiceAccount"),
    ],
    ids=str,
)
def test_a_token_is_asked_for_as_kubernetes_grants_it(source: dict[str, Any], expected: str) -> None:
    found = of_source("ServiceAccount", **source)
    assert [each[: len(expected)] for each in found] == ([expected] if expected else [])


def test_a_machine_has_one_disk_of_a_service_account() -> None:
    account = {"type": "ServiceAccount", "source": {"name": "robot"}}
    assert errors(a_vm(account, SEED, account)) == [f"{DISKS}[2].type: Forbidden: a machine can have only one disk of a service account"]


def test_a_name_that_no_object_has_is_refused() -> None:
    (found,) = of_source("Secret", name="Not-A-Name")
    assert found.startswith('name: Invalid value: "Not-A-Name"')


def test_a_machine_has_one_disk_for_cloud_init() -> None:
    assert errors(a_vm(SEED, DRIVE, FILES)) == [f"{DISKS}[1].type: Forbidden: a machine can have only one disk for cloud-init"]


@pytest.mark.parametrize("disk", [SEED, DRIVE, FILES], ids=lambda each: str(each["type"]))
def test_first_boot_disks_are_always_read_only(disk: dict[str, Any]) -> None:
    (found,) = errors(a_vm({**disk, "device": "disk", "readOnly": False}))
    assert found == f"{DISKS}[0].readOnly: Invalid value: false: a disk of type {disk['type']} is always read-only"


def test_a_read_only_disk_hangs_on_no_bus_that_has_none() -> None:
    expected = f'{DISKS}[0].target.bus: Unsupported value: "sata": supported values: "virtio", "scsi", "usb"'
    assert errors(a_vm({**SEED, "device": "disk", "target": {"bus": "sata"}})) == [expected]
    claim = {"type": "PersistentVolumeClaim", "source": {"name": "c"}, "target": {"bus": "sata"}}
    assert errors(a_vm({**claim, "readOnly": True})) == [expected]
    assert errors(a_vm(claim)) == errors(a_vm({**claim, "device": "cdrom"})) == []


def test_keys_come_by_the_disk_that_brings_them() -> None:
    assert errors(a_vm(SEED, accessCredentials=[a_credential("noCloud"), a_credential("noCloud", secret="more")])) == []
    assert errors(a_vm(DRIVE, accessCredentials=[a_credential("configDrive")])) == []


@pytest.mark.parametrize(
    ("disks", "credential", "expected"),
    [
        ([SEED], a_credential("noCloud", secret=""), f"{KEYS}.source.secret.secretName: Required value: "),
        ([SEED], a_credential("noCloud", secret="A"), f'{KEYS}.source.secret.secretName: Invalid value: "A"'),
        ([SEED], a_credential(), f"{KEYS}.propagationMethod: Required value: one of noCloud, configDrive, qemuGuestAgent"),
        (
            [SEED, FILES],
            a_credential("noCloud", "configDrive"),
            f"{KEYS}.propagationMethod.configDrive: Forbidden: may not be set together",
        ),
        (
            [FILES],
            a_credential("noCloud"),
            f"{KEYS}.propagationMethod.noCloud: Forbidden: requires a disk of type CloudInitNoC",
        ),
        (
            [SEED],
            a_credential("configDrive"),
            f"{KEYS}.propagationMethod.configDrive: Forbidden: requires a disk of type Clou",
        ),
        (
            [{**SEED, "source": {"metaDataBase64": ""}}],
            a_credential("noCloud"),
            f"{KEYS}.propagationMethod.noCloud: Forbidden: may not be set together with meta data",
        ),
    ],
    ids=lambda each: str(each)[:60],
)
def test_keys_that_nothing_would_bring_are_refused(disks: list[dict[str, Any]], credential: dict[str, Any], expected: str) -> None:
    (found,) = errors(a_vm(*disks, accessCredentials=[credential]))
    assert found.startswith(expected)


def by_agent(*users: str) -> list[str]:
    credential = a_credential()
    credential["sshPublicKey"]["propagationMethod"] = {"qemuGuestAgent": {"users": list(users)}}
    return errors(a_vm(accessCredentials=[credential]))


def test_the_agent_sets_keys_of_users_that_are_named() -> None:
    users = f"{KEYS}.propagationMethod.qemuGuestAgent.users"
    assert by_agent("root", "core_1", "build$", "_x.y-z") == []
    assert by_agent() == [f"{users}: Required value: the users of the guest that get the keys"]
    assert by_agent("a", "b", "a") == [f'{users}[2]: Duplicate value: "a"']
    assert by_agent(*(f"u{number}" for number in range(17))) == [f"{users}: Too many: 17: must have at most 16 items"]
    for wrong in ("", "-a", "../root", "a b", "a\n", "x" * 65):
        (found,) = by_agent(wrong)
        assert found.startswith(f"{users}[0]: Invalid value")


def test_there_are_not_more_credentials_than_a_pod_can_mount() -> None:
    many = [a_credential("noCloud")] * (access_credentials.MAX_CREDENTIALS + 1)
    assert errors(a_vm(SEED, accessCredentials=many)) == ["spec.accessCredentials: Too many: 17: must have at most 16 items"]


def test_credentials_may_be_edited_while_there_is_a_guest() -> None:
    old = {**a_vm(SEED, accessCredentials=[a_credential("noCloud")]), "status": {"phase": "Running"}}
    defaults.default_virtual_machine(old)
    new = copy.deepcopy(old)
    new["spec"]["accessCredentials"] = []
    assert validation.validate_virtual_machine_update(new, old) == []
    new["spec"]["accessCredentials"] = [a_credential("noCloud")] * (access_credentials.MAX_CREDENTIALS + 1)
    (found,) = validation.validate_virtual_machine_update(new, old)
    assert str(found) == "spec.accessCredentials: Too many: 17: must have at most 16 items"


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ({"networkData": "version: 2\n"}, "networkData: must be a JSON object"),
        ({"networkData": ""}, "networkData: must be a JSON object"),
        ({"networkDataBase64": in_base64(b"[]")}, "networkDataBase64: must be a JSON object"),
        ({"metaData": "instance-id: a\n"}, "metaData: must be a JSON object"),
        ({"metaData": '{"hostname": "a"}'}, "metaData: must have uuid"),
        ({"networkData": '{"links": []}', "metaData": '{"uuid": "u"}', "userData": ""}, ""),
        ({"networkDataSecretRef": {"name": "s"}}, ""),
    ],
    ids=lambda each: str(each)[:60],
)
def test_a_config_drive_takes_what_cloud_init_reads_of_one(source: dict[str, Any], wrong: str) -> None:
    found = errors(a_vm({**DRIVE, "source": source}))

    assert len(found) == bool(wrong)
    assert all(f'source.{wrong.replace(": ", """: Invalid value: "…": """, 1)}' in each for each in found)

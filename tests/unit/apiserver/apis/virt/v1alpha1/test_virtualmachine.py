from __future__ import annotations

import copy
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import decoding, merge_patch
from apiserver.apis.meta.validation import Path as FieldPath
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.spec import running
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from apiserver.apis.virt.v1alpha1.domain import filesystems
from benchmarks import devices

ROOT = Path(__file__).parents[6]
MACVTAP = Allowed(macvtap=True)
SLIDE_DISK: dict[str, Any] = {
    "kind": "VirtualMachine",
    "metadata": {"name": "testvm"},
    "spec": {
        "domain": {"devices": {"disks": [{"type": "PersistentVolumeClaim", "device": "disk", "source": {"name": "myVolumeClaim"}}]}},
        "nodeSelector": {"cpu": "fast"},
    },
    "status": {"phase": "Running"},
}
SLIDE_GRAPHICS: dict[str, Any] = {
    "kind": "VirtualMachine",
    "metadata": {"name": "testvm"},
    "spec": {"domain": {"devices": {"graphics": [{"type": "spice"}], "consoles": [{"type": "pty"}]}}},
}


def _vm(**spec: Any) -> dict[str, Any]:
    return {"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "acc"}, "spec": {"domain": {}, **spec}}


def _read(obj: dict[str, Any]) -> tuple[list[str], list[str]]:
    unknown, found = decoding.read(types.VirtualMachine, obj)
    return list(unknown), [str(each) for each in found]


def _errors(obj: dict[str, Any], allowed: Allowed = MACVTAP) -> list[str]:
    obj = copy.deepcopy(obj)
    assert _read(obj) == ([], [])
    defaults.default_virtual_machine(obj)
    return [str(each) for each in validation.validate_virtual_machine(obj, allowed)]


def _devices(**devices: Any) -> dict[str, Any]:
    return _vm(domain={"devices": devices})


@pytest.mark.parametrize("manifest", [SLIDE_DISK, SLIDE_GRAPHICS])
def test_the_manifests_of_the_slides_are_accepted_as_they_are(manifest: dict[str, Any]) -> None:
    assert _errors(manifest) == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_the_examples_are_accepted_as_they_are(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["kind"] == "VirtualMachine":
            assert _errors(manifest, Allowed(storage_plugins=frozenset({"images"}), network_plugins=frozenset({"isolated"}))) == []
        elif manifest["kind"] == "Migration":
            assert decoding.read(types.Migration, manifest) == ((), ())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_given_to_a_cluster_by_a_test(path: Path) -> None:
    """A test names the file, or runs the README's commands in its directory. Those of fence agents have a real kube-apiserver."""
    tests = [test.read_text() for test in (*ROOT.glob("tests/cluster/test_*.py"), *ROOT.glob("tests/component/test_fence_agent_*.py"))]
    readme = path.parent / "README.md"
    followed = readme.exists() and path.name in readme.read_text() and any(f'/{path.parent.name}"' in test for test in tests)
    assert followed or any(f'{path.name}"' in test for test in tests)


@pytest.mark.parametrize("name", devices.DEVICES)
def test_the_machines_of_the_benchmark_are_accepted(name: str) -> None:
    assert _errors(devices.machine("one", devices.DEVICES[name])) == []


def test_readme_contains_the_cloud_init_example_verbatim() -> None:
    lines = (ROOT / "examples/cloud-init.yaml").read_text().splitlines()
    manifest = "\n".join(line for line in lines if not line.startswith("#"))
    assert manifest in (ROOT / "README.md").read_text()


def test_defaults_say_what_the_manifest_leaves_out() -> None:
    obj = copy.deepcopy(SLIDE_DISK)
    defaults.default_virtual_machine(obj)
    assert obj["spec"] == {
        "runStrategy": "RerunOnFailure",
        "rerun": {"limit": 2, "startTimeoutSeconds": 180},
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"cpu": "fast"},
        "domain": {
            "cpu": {"sockets": 1, "cores": 1, "threads": 1},
            "memory": {"guest": "512Mi"},
            "machine": {"type": "q35"},
            "devices": {
                "disks": [{"type": "PersistentVolumeClaim", "device": "disk", "source": {"name": "myVolumeClaim"}}],
                "interfaces": [{"name": "default", "type": "masquerade", "model": "virtio"}],
                "graphics": [{"type": "vnc"}],
                "consoles": [{"type": "pty"}],
            },
        },
    }


def test_stored_object_keeps_the_authors_spelling() -> None:
    """``kubectl apply`` compares atomic lists as a whole."""
    written = _vm(
        domain={
            "cpu": {"cores": 2},
            "memory": {"guest": "1024Mi"},
            "devices": {
                "disks": [
                    {"type": "Image", "device": "cdrom", "source": {"reference": "a"}},
                    {"type": "Image", "source": {"reference": "a"}},
                ],
                "interfaces": [{"name": "net"}],
                "graphics": [{"type": "spice"}],
            },
        },
        tolerations=[{"operator": "Exists"}],
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    )
    stored = copy.deepcopy(written)
    defaults.default_virtual_machine(stored)
    assert merge_patch.apply(stored, written) == stored
    assert _errors(stored) == []


def test_an_empty_list_of_devices_means_none() -> None:
    obj = _devices(interfaces=[], graphics=[], consoles=[])
    defaults.default_virtual_machine(obj)
    assert obj["spec"]["domain"]["devices"] == {"disks": [], "interfaces": [], "graphics": [], "consoles": []}


def test_every_unknown_and_every_wrong_field_is_named_at_once() -> None:
    obj = _vm(
        runStrategy="Sometimes",
        nodeSelector={"cpu": 5},
        foo=1,
        tolerations=[{"operator": "Maybe"}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
        domain={
            "cpu": {"cores": "1", "threads": True, "sockets": 2**31},
            "memory": {"guest": "much"},
            "devices": {"disks": [{"foo": 1, "type": "Image"}, {"type": "Floppy", "source": {}, "bootOrder": 1.5}, 7], "bar": []},
        },
    )
    unknown, found = _read(obj)
    assert sorted(unknown) == ["spec.domain.devices.bar", "spec.domain.devices.disks[0].foo", "spec.foo"]
    assert found == [
        'spec.runStrategy: Unsupported value: "Sometimes": supported values: "Always", "RerunOnFailure", "Once", "Manual", "Halted"',
        "spec.nodeSelector.cpu: Invalid value: 5: must be a string",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value",
        'spec.tolerations[0].operator: Unsupported value: "Maybe": supported values: "Exists", "Equal", "Gt", "Lt"',
        "spec.domain.cpu.sockets: Invalid value: 2147483648: must be less than 2147483648",
        'spec.domain.cpu.cores: Invalid value: "1": must be an integer',
        "spec.domain.cpu.threads: Invalid value: true: must be an integer",
        'spec.domain.memory.guest: Invalid value: "much": quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', such as 128Mi or 1Gi",
        'spec.domain.devices.disks[1].type: Unsupported value: "Floppy": supported values: "PersistentVolumeClaim", "Image", "EmptyDisk", '
        '"CloudInitNoCloud", "CloudInitConfigDrive", "Secret", "ConfigMap", "DownwardAPI", "ServiceAccount", "ISCSI", "NBD", "NFS", '
        '"RBD", "Plugin", "HostDisk"',
        "spec.domain.devices.disks[1].bootOrder: Invalid value: 1.5: must be an integer",
        "spec.domain.devices.disks[2]: Invalid value: 7: must be an object",
    ]
    assert "foo" not in obj["spec"], "unknown fields are never stored"


def test_null_means_that_nothing_is_said() -> None:
    obj = _vm(terminationGracePeriodSeconds=None, domain={"devices": {"disks": None}})
    assert _read(obj) == ([], [])
    assert obj["spec"] == {"domain": {"devices": {}}}


@pytest.mark.parametrize("body", [{}, {"spec": 5}, {"spec": None}, {"spec": {"domain": []}}])
def test_a_body_without_the_essential_is_told_what_is_missing(body: dict[str, Any]) -> None:
    _, found = _read(body)
    assert len(found) == 1
    assert found[0].startswith(("spec: ", "spec.domain: "))


def test_a_machine_without_a_domain_is_told_what_is_missing() -> None:
    assert _errors({"kind": "VirtualMachine", "metadata": {"name": "vm1"}, "spec": {}}) == [
        ("spec.domain: Required value: set this or spec.domainXML")
    ]


def test_a_bomb_of_nesting_is_refused_and_not_followed() -> None:
    nested: Any = {}
    for _ in range(5000):
        nested = {"a": nested}
    _, found = _read(_vm(domain=nested))
    assert len(found) == 1
    assert "nested deeper than 64 levels" in found[0]


def test_a_long_key_is_not_written_out_for_each_value_below_it() -> None:
    obj = {"spec": {"k" * 100_000: {str(number): [number] for number in range(1000)} | {"none": None}}}
    tracemalloc.start()
    try:
        unknown, _ = decoding.read(types.VirtualMachine, obj)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert unknown == ("spec." + "k" * 100_000,)


def test_an_unknown_null_is_told_and_a_known_one_says_nothing() -> None:
    obj = {"spec": {"nosuch": None, "nodeName": None}, "foo": None}
    unknown, _ = decoding.read(types.VirtualMachine, obj)
    assert sorted(unknown) == ["foo", "spec.nosuch"]
    assert obj == {"spec": {}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (_vm(domain={"memory": {"guest": "1Mi"}}), 'spec.domain.memory.guest: Invalid value: "1Mi": must be greater than or equal to 16Mi'),
        (_vm(domain={"memory": {"guest": "17Ti"}}), 'spec.domain.memory.guest: Invalid value: "17Ti": must be less than or equal to 16Ti'),
        (_vm(domain={"cpu": {"cores": 0}}), "spec.domain.cpu.cores: Invalid value: 0: must be greater than or equal to 1"),
        (
            _vm(domain={"cpu": {"cores": 100, "sockets": 100}}),
            "spec.domain.cpu: Invalid value: 10000: sockets x cores x threads must be less than or equal to 255",
        ),
        (_vm(rerun={"limit": 10}), "spec.rerun.limit: Invalid value: 10: must be less than or equal to 9"),
        (
            _vm(terminationGracePeriodSeconds=-1),
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            _vm(domain={"firmware": {"uuid": "x"}}),
            'spec.domain.firmware.uuid: Invalid value: "x": must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223',
        ),
        (
            _vm(domain={"firmware": {"kernelBoot": {"container": {"image": "a", "kernelPath": "boot/x"}}}}),
            'spec.domain.firmware.kernelBoot.container.kernelPath: Invalid value: "boot/x": must be an absolute path',
        ),
        (
            _vm(domain={"firmware": {"kernelBoot": {"container": {"image": "a", "kernelPath": "/k", "initrdPath": "/a/../b"}}}}),
            "spec.domain.firmware.kernelBoot.container.initrdPath: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            _vm(domain={"firmware": {"kernelBoot": {"container": {"image": "a", "kernelPath": "/k"}, "kernelArgs": "a\nb"}}}),
            'spec.domain.firmware.kernelBoot.kernelArgs: Invalid value: "a\\nb": must consist of printable characters',
        ),
        (
            _vm(domain={"machine": {"type": "q35'/>"}}),
            'spec.domain.machine.type: Invalid value: "q35\'/>": must be one of q35, pc, and their versions pc-q35-2.4 to pc-q35-10.0 and '
            "pc-i440fx-2.4 to pc-i440fx-10.0",
        ),
        (
            _devices(disks=[{"type": "Image", "source": {}}]),
            "spec.domain.devices.disks[0].source.reference: Required value: the reference of a container image",
        ),
        (
            _devices(disks=[{"type": "PersistentVolumeClaim"}]),
            "spec.domain.devices.disks[0].source: Required value: type PersistentVolumeClaim needs source.name",
        ),
        (
            _devices(disks=[{"device": "cdrom", "source": {"name": "a"}}]),
            "spec.domain.devices.disks[0].type: Required value: set type, such as PersistentVolumeClaim, Image or EmptyDisk, and source; "
            "only an empty cdrom has neither",
        ),
        (
            _devices(disks=[{"device": "cdrom", "ioTune": {"totalIopsSec": 1}}]),
            "spec.domain.devices.disks[0].ioTune: Forbidden: requires a medium: the drive has neither type nor source",
        ),
        (
            _devices(disks=[{"type": "Image", "source": {"reference": "a", "name": "b"}}]),
            "spec.domain.devices.disks[0].source.name: Forbidden: may not be set for a disk of type Image",
        ),
        (
            _devices(disks=[{"type": "Image", "source": {"reference": "a", "path": "../../etc/passwd"}}]),
            "spec.domain.devices.disks[0].source.path: Invalid value: \"../../etc/passwd\": must not contain '..'",
        ),
        (
            _devices(disks=[{"type": "Image", "source": {"reference": "a", "sizeLimit": "1k"}}]),
            'spec.domain.devices.disks[0].source.sizeLimit: Invalid value: "1k": must be greater than or equal to 1Mi',
        ),
        (
            _devices(disks=[{"type": "Image", "source": {"reference": "a", "sizeLimit": "1Ei"}}]),
            'spec.domain.devices.disks[0].source.sizeLimit: Invalid value: "1Ei": must be less than or equal to 64Ti',
        ),
        (
            _devices(disks=[{"type": "Image", "readOnly": True, "source": {"reference": "a", "sizeLimit": "1Gi"}}]),
            "spec.domain.devices.disks[0].source.sizeLimit: Forbidden: may not be set for a read-only disk",
        ),
        (
            _devices(disks=[{"type": "PersistentVolumeClaim", "source": {"name": "a", "sizeLimit": "1Gi"}}]),
            "spec.domain.devices.disks[0].source.sizeLimit: Forbidden: of a claim requires ephemeral: true",
        ),
        (
            _devices(disks=[{"type": "PersistentVolumeClaim", "source": {}}]),
            "spec.domain.devices.disks[0].source.name: Required value: the name of a PersistentVolumeClaim in the same namespace",
        ),
        (
            _devices(disks=[{"name": n, "type": "Image", "source": {"reference": "a"}} for n in ("a", "b", "a")]),
            'spec.domain.devices.disks[2].name: Duplicate value: "a"',
        ),
        (
            _devices(
                disks=[{"name": "disk1", "type": "Image", "source": {"reference": "a"}}, {"type": "Image", "source": {"reference": "a"}}]
            ),
            'spec.domain.devices.disks[1].name: Duplicate value: "disk1"',
        ),
        (
            _devices(disks=[{"type": "Image", "device": "cdrom", "source": {"reference": "a"}, "target": {"bus": "virtio"}}]),
            'spec.domain.devices.disks[0].target.bus: Unsupported value: "virtio": supported values: "sata", "scsi", "usb"',
        ),
        (
            _devices(disks=[{"type": "Image", "source": {"reference": "a"}, "serial": "'"}]),
            "spec.domain.devices.disks[0].serial: Invalid value: \"'\": must consist of alphanumeric characters, '_', '.', '+' or '-'",
        ),
        (
            _devices(disks=[{"type": "Image", "source": {"reference": "a"}} for _ in range(27)]),
            "spec.domain.devices.disks: Too many: 27: must have at most 26 items",
        ),
        (
            _devices(interfaces=[{"name": "a", "mac": "02:00:00:00:00"}]),
            'spec.domain.devices.interfaces[0].mac: Invalid value: "02:00:00:00:00": must be six pairs of hexadecimal digits such as '
            "52:54:00:c0:ff:ee",
        ),
        (
            _devices(interfaces=[{"name": "a", "mac": "01:00:00:00:00:01"}]),
            'spec.domain.devices.interfaces[0].mac: Invalid value: "01:00:00:00:00:01": must be a unicast address and not all zeros',
        ),
        (
            _devices(interfaces=[{"name": "a", "mac": "02:00:00:00:00:01"}]),
            'spec.domain.devices.interfaces[0].mac: Invalid value: "02:00:00:00:00:01": is reserved for the guest\'s gateway or the '
            "node's side of the link; use another address such as 52:54:00:c0:ff:ee",
        ),
        *(
            (
                _devices(interfaces=[{"name": "a", "network": given}]),
                f'spec.domain.devices.interfaces[0].network: Invalid value: "{given}": must be the name of a NetworkAttachmentDefinition '
                "in the machine's namespace (a DNS-1123 label, as Multus requires), or default/NAME; "
                "networks of other namespaces are not allowed",
            )
            for given in ("", "kube-system/lan", "default/", "/lan", "default/a/b", "a.b", "lan@eth0", "lan,wan", "[{}]", "A")
        ),
        (
            _devices(interfaces=[{"name": "a", "network": "lan", "type": "masquerade"}]),
            "spec.domain.devices.interfaces[0].type: Forbidden: may not be masquerade with network: only the pod's own network can be "
            "masqueraded",
        ),
        *(
            (_devices(interfaces=[{"name": "a", "type": "passt", "ports": [], **given}]), f"spec.domain.devices.interfaces[0].{error}")
            for given, error in (
                ({"network": "lan"}, "type: Forbidden: may not be passt with network: passt supports only the pod's own network"),
                ({"model": "e1000"}, "model: Forbidden: type passt requires model virtio"),
                ({"state": "up"}, "state: Forbidden: may not be set for type passt, which has no link state"),
                ({"ports": None}, "ports: Required value: of type passt; [] means none"),
                ({"deviceName": "a.b/c"}, "deviceName: Forbidden: may be set only for type sriov"),
            )
        ),
        *(
            (
                _devices(interfaces=[{"name": "a", "ports": [], **given}]),
                "spec.domain.devices.interfaces[0].ports: Forbidden: may be set only for types masquerade and passt",
            )
            for given in ({"type": "bridge"}, {"network": "lan"})
        ),
        (
            _devices(interfaces=[{"name": each, "type": "passt", "ports": []} for each in "ab"]),
            (
                "spec.domain.devices.interfaces[1].network: Forbidden: only one interface can use the pod's network, "
                "and spec.domain.devices.interfaces[0] already does: name another network"
            ),
        ),
        (
            _devices(interfaces=[{"name": "a", "type": "macvtap"}]),
            "spec.domain.devices.interfaces[0].type: Forbidden: type macvtap requires a further network: set network",
        ),
        (
            _devices(interfaces=[{"name": "a", "type": "macvtap", "network": "lan", "ports": []}]),
            "spec.domain.devices.interfaces[0].ports: Forbidden: may be set only for types masquerade and passt",
        ),
        (_devices(interfaces=[{"name": "a", "type": "sriov", "deviceName": "a.b/c"}]), None),
        (_devices(interfaces=[{"name": "a", "type": "sriov", "network": "lan"}]), None),
        *(
            (_devices(interfaces=[{"name": "a", "type": "sriov", "network": "lan", "deviceName": given}]), None)
            for given in ("c", "kubernetes.io/c", "devices.kubevirt.io/kvm", "a.b/" + "x" * 200, "a.b/c d")
        ),
        (
            _devices(interfaces=[{"name": "a", "type": "sriov", "network": "lan", "deviceName": "a.b/c", "model": "virtio"}]),
            "spec.domain.devices.interfaces[0].model: Forbidden: may not be set for type sriov, because the card belongs to the node",
        ),
        (
            _devices(interfaces=[{"name": "a", "network": "lan", "deviceName": "a.b/c"}]),
            "spec.domain.devices.interfaces[0].deviceName: Forbidden: may be set only for type sriov",
        ),
        (
            _devices(interfaces=[{"name": each, "type": "sriov", "network": "lan", "deviceName": "a.b/c"} for each in "ab"]),
            'spec.domain.devices.interfaces[1].deviceName: Duplicate value: "a.b/c"',
        ),
        (
            _devices(
                hostDevices=[{"name": "h", "deviceName": "a.b/c"}],
                interfaces=[{"name": "a", "type": "sriov", "network": "lan", "deviceName": "a.b/c"}],
            ),
            'spec.domain.devices.interfaces[0].deviceName: Duplicate value: "a.b/c"',
        ),
        (
            _devices(interfaces=[{"name": "a", "type": "sriov", "deviceName": "a.b/c"}]),
            "spec.domain.devices.interfaces[0].type: Forbidden: type sriov requires a further network: set network",
        ),
        (
            _devices(
                interfaces=[{"name": "a", "type": "bridge"}],
                disks=[{"name": "far", "type": "NBD", "source": {"host": "nbd.example", "export": "e"}}],
            ),
            "spec.domain.devices.interfaces[0].type: Forbidden: type bridge takes the pod's address, which QEMU needs for disk far",
        ),
        (
            _devices(interfaces=[{"name": "a", "type": "bridge", "ports": []}]),
            "spec.domain.devices.interfaces[0].ports: Forbidden: may be set only for types masquerade and passt",
        ),
        (_devices(interfaces=[{"name": "a", "mac": "02-00-00-00-00-01"}]), None),
        (_devices(interfaces=[{"name": "a", "mac": "02:00:00:00:00:02"}]), None),
        (_devices(interfaces=[{"name": "a", "mac": "FF:FF:FF:FF:FF:FF"}]), None),
        (_devices(interfaces=[{"name": "a", "mac": "00:00:00:00:00:00"}]), None),
        (
            _devices(interfaces=[{"name": "a", "ports": [{"port": 0}]}]),
            "spec.domain.devices.interfaces[0].ports[0].port: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            _devices(interfaces=[{"name": "a", "ports": [{"port": 65536, "protocol": "UDP"}]}]),
            "spec.domain.devices.interfaces[0].ports[0].port: Invalid value: 65536: must be less than or equal to 65535",
        ),
        (
            _devices(interfaces=[{"name": "a", "ports": [{"port": 22}, {"port": 22, "protocol": "UDP"}, {"port": 22, "protocol": "TCP"}]}]),
            'spec.domain.devices.interfaces[0].ports[2]: Duplicate value: "22/TCP"',
        ),
        (
            _devices(interfaces=[{"name": "a", "ports": [{"name": "ssh", "port": 22}, {"name": "ssh", "port": 23}]}]),
            'spec.domain.devices.interfaces[0].ports[1].name: Duplicate value: "ssh"',
        ),
        (
            _devices(interfaces=[{"name": "a", "ports": [{"port": each} for each in range(1, 66)]}]),
            "spec.domain.devices.interfaces[0].ports: Too many: 65: must have at most 64 items",
        ),
        (
            _devices(interfaces=[{"name": "a"}, {"name": "b"}]),
            (
                "spec.domain.devices.interfaces[1].network: Forbidden: only one interface can use the pod's network, "
                "and spec.domain.devices.interfaces[0] already does: name another network"
            ),
        ),
        (
            _devices(graphics=[{"type": "vnc"}, {"type": "vnc"}]),
            'spec.domain.devices.graphics[1].type: Duplicate value: "vnc"',
        ),
        (_vm(tolerations=[{"operator": "Exists", "value": "a", "key": "b"}]), None),
        (
            _vm(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            _vm(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}),
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty",
        ),
        (
            {**_vm(), "metadata": {"name": "a" * 64}},
            "metadata.name: Too long: may not be more than 63 bytes",
        ),
    ],
)
def test_invalid_machines_are_refused(obj: dict[str, Any], expected: str | None) -> None:
    found = _errors(obj)
    assert len(found) == 1
    if expected is not None:
        assert found == [expected]


def test_bridge_interface_is_allowed_with_further_networks() -> None:
    far = {"name": "far", "type": "NBD", "source": {"host": "nbd.example", "export": "e"}}
    assert not _errors(_devices(interfaces=[{"name": "a", "type": "bridge"}, {"name": "b", "network": "lan"}]))
    assert not _errors(_devices(interfaces=[{"name": "a"}, {"name": "b", "type": "bridge", "network": "lan"}], disks=[far]))


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        *((each, True) for each in ("a", "x-11", "0a", "abcdefghijklmno")),
        *((each, False) for each in ("", "22", "A", "a--b", "-a", "a-", "a.b")),
    ],
)
def test_ports_have_names_that_a_container_may_give_them(name: str, *, may_be: bool) -> None:
    assert (not _errors(_devices(interfaces=[{"name": "a", "ports": [{"name": name, "port": 22}]}]))) == may_be
    assert _errors(_devices(interfaces=[{"name": "a", "ports": [{"name": f"{name}\n", "port": 22}]}]))
    assert _errors(_devices(interfaces=[{"name": "a", "ports": [{"name": name * 16, "port": 22}]}]))


def test_all_that_is_wrong_is_said_at_once() -> None:
    obj = _vm(domain={"cpu": {"cores": 0}, "memory": {"guest": "1"}, "devices": {"interfaces": [{"name": "A"}]}}, nodeSelector={"-": "a b"})
    fields = {each.partition(":")[0] for each in _errors(obj)}
    assert fields == {
        "spec.nodeSelector",
        "spec.domain.cpu.cores",
        "spec.domain.memory.guest",
        "spec.domain.devices.interfaces[0].name",
    }


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_machine_with_oversized_metadata_is_refused(field: str) -> None:
    obj = _vm()
    obj["metadata"][field] = {f"a{number:05}": "" for number in range(12_000)}
    assert len(_errors(obj)) == 1
    assert _errors(obj)[0].startswith("metadata: Too long: may have, together with the spec, at most 131072 bytes as JSON, but has ")

    old = copy.deepcopy(obj)
    assert validation.validate_virtual_machine_update(obj, old) == []
    obj["metadata"][field]["one-more"] = ""
    assert len(validation.validate_virtual_machine_update(obj, old)) == 1


def _with_user_data(text: str) -> dict[str, Any]:
    disk = {"name": "cloud-init", "type": "CloudInitNoCloud", "source": {"userData": text}}
    obj = _vm(domain={"devices": {"disks": [disk]}})
    applied = json.dumps({"spec": obj["spec"]}, ensure_ascii=False)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    return obj


@pytest.mark.parametrize("text", ["#cloud-config\n" + "- a\n" * (62 << 8), "#cloud-config\n" + "中" * 21_840])
def test_stored_bytes_count_without_the_last_applied_annotation(text: str) -> None:
    assert _errors(_with_user_data(text)) == []


@pytest.mark.parametrize(
    ("change", "field", "way_out"),
    [
        ({"userData": "a" * (200 << 10)}, "spec.domain.devices.disks[0].source.userData", "set userDataSecretRef"),
        ({"networkDataBase64": "YQ==" * (50 << 10)}, "spec.domain.devices.disks[0].source.networkDataBase64", "set networkDataSecretRef"),
    ],
)
def test_oversized_object_names_its_largest_field(change: dict[str, str], field: str, way_out: str) -> None:
    obj = _with_user_data("")
    obj["spec"]["domain"]["devices"]["disks"][0]["source"] = change
    found = [each for each in _errors(obj) if "bytes as JSON" in each]
    assert len(found) == 1
    assert found[0].startswith(f"{field}: Too long: ")
    assert way_out in found[0]
    obj = _vm()
    obj["metadata"]["annotations"] = {"a.b/c": "a" * (200 << 10)}
    assert _errors(obj)[0].startswith("metadata.annotations[a.b/c]: Too long: ")


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_domain_may_be_edited_in_every_phase_and_is_validated(phase: str) -> None:
    old = _vm()
    defaults.default_virtual_machine(old)
    old["status"] = {"phase": phase}
    new = copy.deepcopy(old)
    new["spec"]["domain"]["cpu"]["cores"] = 2
    for each in (old, {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}):
        assert validation.validate_virtual_machine_update(new, each) == []
    new["spec"]["domain"]["cpu"]["cores"] = 0
    assert [each.path for each in validation.validate_virtual_machine_update(new, old)] == ["spec.domain.cpu.cores"]


def test_equivalent_spelling_is_no_change_of_a_running_machine() -> None:
    old = _vm(domain={"memory": {"guest": "1024Mi"}, "devices": {"disks": [{"type": "Image", "source": {"reference": "a"}}]}})
    defaults.default_virtual_machine(old)
    old["status"] = {"phase": "Running"}
    new = copy.deepcopy(old)
    new["spec"]["domain"]["memory"]["guest"] = "1Gi"
    disk = new["spec"]["domain"]["devices"]["disks"][0]
    disk |= {"name": "disk0", "device": "disk", "readOnly": False, "target": {"bus": "virtio"}}
    running.note_edit(new, old, has_guest=True)
    assert "running" not in new["status"]
    disk["target"]["bus"] = "scsi"
    running.note_edit(new, old, has_guest=True)
    assert [str(each) for each in running.differences(new)] == ["spec.domain.devices.disks[disk0]"]


@pytest.mark.parametrize("machine", ["q35", "pc", "pc-q35-10.0", "pc-q35-4.0.1", "pc-i440fx-2.12", "pc-i440fx-9.2"])
def test_a_machine_type_that_the_image_has_is_taken(machine: str) -> None:
    assert _errors(_vm(domain={"machine": {"type": machine}})) == []


@pytest.mark.parametrize(
    "machine", ["", "q36", "Q35", "pc-q35-99.9", "pc-q35-2.3", "pc-q35-7.3", "pc-q35-noble", "microvm", "none", "virt"]
)
def test_unsupported_machine_type_is_refused(machine: str) -> None:
    assert [each.partition(": ")[0] for each in _errors(_vm(domain={"machine": {"type": machine}}))] == ["spec.domain.machine.type"]


@pytest.mark.parametrize("bus", ["sata", "scsi", "usb"])
def test_a_drive_may_be_empty(bus: str) -> None:
    assert _errors(_devices(disks=[{"device": "cdrom"}, {"device": "cdrom", "target": {"bus": bus}, "bootOrder": 1, "serial": "s"}])) == []


@pytest.mark.parametrize("disk", [{}, {"device": "disk", "readOnly": True}])
def test_only_a_drive_may_be_empty(disk: dict[str, Any]) -> None:
    told = "Required value: set type, such as PersistentVolumeClaim, Image or EmptyDisk, and source; only an empty cdrom has neither"
    assert _errors(_devices(disks=[disk])) == [f"spec.domain.devices.disks[0].{each}: {told}" for each in ("type", "source")]


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        ("EmptyDisk", "needs source.size"),
        ("HostDisk", "needs source.path"),
        ("ConfigMap", "needs source.name"),
        ("Secret", "needs source.name"),
        ("DownwardAPI", "needs source.items"),
        ("ServiceAccount", "needs source.name"),
        ("CloudInitNoCloud", "requires a source with the fields metaData, "),
    ],
)
def test_a_disk_without_source_is_told_what_its_type_needs(kind: str, needs: str) -> None:
    (told,) = _errors(_devices(disks=[{"type": kind}]))
    assert told.startswith(f"spec.domain.devices.disks[0].source: Required value: type {kind} {needs}")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"device": "cdrom"}, "with device cdrom would stay empty: a cdrom without a medium has neither type nor source"),
        ({"readOnly": True}, "with readOnly would stay empty: the guest could not write to it"),
    ],
)
def test_unwritable_empty_disk_is_refused_with_the_reason(given: dict[str, Any], told: str) -> None:
    errors = _errors(_devices(disks=[{"type": "EmptyDisk", "source": {"size": "1Mi"}, **given}]))
    assert errors == [f"spec.domain.devices.disks[0].source: Forbidden: a disk of type EmptyDisk {told}"]


def test_file_system_of_type_none_gets_no_type_rules() -> None:
    given = {"name": "a", "source": {}, "readOnly": False}
    assert filesystems.validate({"devices": {"filesystems": [given]}}, FieldPath("domain")) == []
    secret = {**given, "type": "Secret", "source": {"name": "a"}}
    (told,) = filesystems.validate({"devices": {"filesystems": [secret]}}, FieldPath("domain"))
    assert str(told) == "domain.devices.filesystems[0].readOnly: Invalid value: false: a file system of type Secret is always read-only"


def test_second_pod_network_interfaces_are_each_named() -> None:
    found = _errors(_devices(interfaces=[{"name": "lan", "network": "lan"}, {"name": "a"}, {"name": "b"}, {"name": "c"}]))
    assert [each.partition(" ")[0] for each in found] == [f"spec.domain.devices.interfaces[{each}].network:" for each in (2, 3)]


LUN: dict[str, Any] = {"device": "lun", "type": "PersistentVolumeClaim", "source": {"name": "raw"}}


def test_a_lun_is_the_device_itself() -> None:
    assert _errors(_devices(disks=[LUN, {**LUN, "source": {"name": "b"}, "target": {"bus": "scsi"}, "bootOrder": 1}])) == []
    own = {"readOnly": True, "serial": "s", "wwn": "5000c500a1b2c3d4", "driver": {"cache": "none"}, "ioTune": {"totalIopsSec": 1}}
    told = _errors(_devices(disks=[{**LUN, **own, "blockSize": {"logical": 512}, "source": {"name": "a", "ephemeral": False}}]))
    path = "spec.domain.devices.disks[0]"
    refused = ("source.ephemeral", "readOnly", "serial", "wwn", "driver", "blockSize", "ioTune")
    assert told == [f"{path}.{each}: Forbidden: may not be set for a lun" for each in refused]


@pytest.mark.parametrize("bus", ["virtio", "sata", "usb"])
def test_a_lun_hangs_on_scsi(bus: str) -> None:
    told = f'spec.domain.devices.disks[0].target.bus: Unsupported value: "{bus}": supported values: "scsi"'
    assert _errors(_devices(disks=[{**LUN, "target": {"bus": bus}}])) == [told]


@pytest.mark.parametrize("disk", [{"type": "EmptyDisk", "source": {"size": "1Gi"}}, {"type": "Image", "source": {"reference": "a"}}, {}])
def test_only_a_claim_or_a_unit_can_be_a_lun(disk: dict[str, Any]) -> None:
    told = 'spec.domain.devices.disks[0].device: Invalid value: "lun": needs type PersistentVolumeClaim or ISCSI'
    assert told in _errors(_devices(disks=[{**disk, "device": "lun"}]))


def test_claim_can_be_only_one_disk() -> None:
    disks = [{"type": "PersistentVolumeClaim", "source": {"name": each}} for each in ("root", "data", "Data", "root", "other")]
    disks += [{"type": "Image", "source": {"reference": "a"}}, {"type": "Image", "source": {"reference": "a"}}]
    assert _errors(_devices(disks=disks)) == [
        'spec.domain.devices.disks[2].source.name: Duplicate value: "data"',
        'spec.domain.devices.disks[3].source.name: Duplicate value: "root"',
    ]


def test_a_spec_that_did_not_change_is_not_judged_again() -> None:
    old = _vm(domain={"memory": {"guest": "1Mi"}})
    defaults.default_virtual_machine(old)
    assert validation.validate_virtual_machine(old) != []
    assert validation.validate_virtual_machine_update(copy.deepcopy(old), old) == []


def test_machine_with_a_now_refused_mac_can_still_be_stopped() -> None:
    old = _vm(domain={"devices": {"interfaces": [{"name": "a", "mac": "02:00:00:00:00:01"}]}})
    defaults.default_virtual_machine(old)
    new = copy.deepcopy(old)
    new["spec"]["runStrategy"] = "Halted"
    assert validation.validate_virtual_machine_update(new, old) == []
    new["spec"]["rerun"]["limit"] = 1000
    assert len(validation.validate_virtual_machine_update(new, old)) == 1
    new = copy.deepcopy(old)
    new["spec"]["domain"]["cpu"]["cores"] = 2
    assert [each.partition(":")[0] for each in map(str, validation.validate_virtual_machine_update(new, old))] == [
        "spec.domain.devices.interfaces[0].mac"
    ]


def _claim_or_itself(disk: Any) -> object:
    return disk["source"].get("name", id(disk))


SPECS = st.fixed_dictionaries(
    {
        "domain": st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.fixed_dictionaries({}, optional={"cores": st.integers(1, 4), "model": st.sampled_from(["", "host-model"])}),
                "memory": st.fixed_dictionaries({}, optional={"guest": st.sampled_from(["1Gi", "0.5Gi", 2**30, "1e9"])}),
                "devices": st.fixed_dictionaries(
                    {},
                    optional={
                        "disks": st.lists(
                            st.sampled_from(
                                [
                                    {"type": "Image", "source": {"reference": "a"}},
                                    {"type": "Image", "device": "cdrom", "source": {"reference": "a"}},
                                    {"type": "PersistentVolumeClaim", "source": {"name": "b"}},
                                ]
                            ).map(copy.deepcopy),
                            max_size=3,
                            unique_by=_claim_or_itself,
                        ),
                        "interfaces": st.sampled_from([[], [{"name": "net"}]]).map(copy.deepcopy),
                    },
                ),
            },
        )
    },
    optional={"runStrategy": st.sampled_from(["Always", "Halted"]), "rerun": st.fixed_dictionaries({}, optional={"limit": st.just(0)})},
)


@given(SPECS)
def test_defaulting_is_idempotent_and_valid(spec: dict[str, Any]) -> None:
    obj = _vm(**spec)
    defaults.default_virtual_machine(obj)
    once = copy.deepcopy(obj)
    defaults.default_virtual_machine(obj)
    assert obj == once
    assert _errors(obj) == []


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2),
            st.dictionaries(st.sampled_from(["spec", "domain", "devices", "disks", "source", "type", "x"]), inner, max_size=3),
        ),
    )
)
def test_any_json_is_read_or_refused_with_paths(value: Any) -> None:
    obj = value if isinstance(value, dict) else {"spec": value}
    unknown, found = _read(obj)
    assert all(unknown)
    if not found:
        defaults.default_virtual_machine(obj)
        validation.validate_virtual_machine(obj)


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [1] * decoding.MAX_VALUES},
        {"tolerations": [None] * decoding.MAX_VALUES},
        {"tolerations": [{"key": number} for number in range(decoding.MAX_VALUES)]},
        {"nodeSelector": {f"key{number}": number for number in range(decoding.MAX_VALUES + 1)}},
        {f"unknown{number}": 1 for number in range(decoding.MAX_VALUES + 1)},
        {"nodeSelector": {"a": 1 << 70}, "tolerations": [1] * decoding.MAX_VALUES},
    ],
    ids=["numbers", "nulls", "objects", "map", "unknown", "long integer"],
)
def test_object_with_too_many_values_is_refused_early(spec: dict[str, Any]) -> None:
    """A million numbers in a body of 2 MB would take 1.6 KB each."""
    spec["runStrategy"] = "Always"
    unknown, found = decoding.read(types.VirtualMachine, {"metadata": {}, "spec": spec})
    assert unknown == ()
    assert [(each.path, each.detail) for each in found] == [("spec", "an object has at most 20000 values in its lists and maps")]
    with pytest.raises(ValueError, match="too many values"):
        decoding.prune(types.VirtualMachine, {"spec": spec})


def test_an_object_with_many_values_is_judged_value_by_value() -> None:
    spec = {"domain": {}, "tolerations": [1] * 10_000}
    _, found = decoding.read(types.VirtualMachine, {"metadata": {}, "spec": spec})
    assert len(found) == 10_000


@pytest.mark.parametrize("validate", [validation.validate_virtual_machine, validation.validate_migration])
def test_two_names_of_one_label_have_one_value(validate: Any) -> None:
    obj = _vm(nodeSelector={"kubevirt.io/hostname": "node1", "kubernetes.io/hostname": "node1"}, selector={"name": "vm1"})
    defaults.default_virtual_machine(obj)
    assert validate(obj) == []
    obj["spec"]["nodeSelector"]["kubernetes.io/hostname"] = "node2"
    (error,) = validate(obj)
    assert str(error).startswith('spec.nodeSelector: Invalid value: "node2": kubevirt.io/hostname stands for kubernetes.io/hostname')


def test_two_disks_of_a_machine_have_no_equal_serials() -> None:
    both = [{"name": name, "type": "Image", "source": {"reference": "a"}, "serial": "s-1"} for name in "ab"]

    assert _errors(_devices(disks=both)) == ['spec.domain.devices.disks[1].serial: Duplicate value: "s-1"']
    assert _errors(_devices(disks=[{**each, "serial": ""} for each in both])) == []

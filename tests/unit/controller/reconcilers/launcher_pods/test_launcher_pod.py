"""The pods of VMs, as files. ``UPDATE_GOLDEN=1 pytest`` with this file writes them again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import attachments
from controller.reconcilers import disk_claims
from controller.reconcilers.launcher_pods.disks import overlays_bytes
from controller.reconcilers.launcher_pods.launcher import LOG_BYTES
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod, requirements, resized, target_pod
from controller.reconcilers.launcher_pods.requirements import MIB
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.settings import Settings
from tests.unit.controller.reconcilers.builders import a_migration, a_vm
from tests.unit.controller.reconcilers.copied import COPIED
from tests.unit.pods import unbounded

GOLDEN = Path(__file__).parents[5] / "tests/golden/pods"
SETTINGS = Settings("registry.example/virt-launcher:v1", image_pull_secrets=("pull",))

KERNEL = {"image": "registry.example/kernel:v1", "imagePullPolicy": "Always", "kernelPath": "/vmlinuz"}
TINY = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"graphics": [], "interfaces": []}})
DISKS = a_vm(
    terminationGracePeriodSeconds=60,
    domain={
        "cpu": {"sockets": 1, "cores": 2, "threads": 2},
        "memory": {"guest": "2Gi"},
        "firmware": {"kernelBoot": {"container": KERNEL}},
        "devices": {
            "disks": [
                {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "myVolumeClaim"}},
                {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "raw"}},
                {
                    "name": "cd",
                    "type": "Image",
                    "device": "cdrom",
                    "source": {"reference": "registry.example/cd:v1", "pullPolicy": "Always"},
                },
                {"name": "scratch", "type": "PersistentVolumeClaim", "source": {"name": "other", "ephemeral": True, "sizeLimit": "1Gi"}},
                {"name": "blank", "type": "EmptyDisk", "source": {"size": "2Gi"}},
                {"name": "drive", "device": "cdrom"},
            ]
        },
    },
)
FIRST_BOOT = a_vm(
    accessCredentials=[{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}],
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [{"name": "lan", "ports": [{"name": "ssh", "port": 22}, {"port": 53, "protocol": "UDP"}]}],
            "disks": [
                {
                    "name": "seed",
                    "type": "CloudInitNoCloud",
                    "source": {"userDataSecretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net", "key": "eth0.yaml"}},
                },
                {"name": "answers", "type": "Secret", "source": {"name": "unattend"}},
                {"name": "config", "type": "ConfigMap", "source": {"name": "settings"}},
                {
                    "name": "fields",
                    "type": "DownwardAPI",
                    "source": {
                        "items": [
                            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                            {"path": "role", "fieldRef": {"fieldPath": "metadata.annotations['example.com/role']"}},
                            {"path": "again", "fieldRef": {"fieldPath": "metadata.labels"}},
                            {"path": "memory", "resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
                            {"path": "cpu", "resourceFieldRef": {"resource": "requests.cpu"}},
                        ]
                    },
                },
                {"name": "said", "type": "CloudInitConfigDrive", "source": {"userData": "text"}},
            ],
        },
    },
)
FIRST_BOOT["metadata"] |= {"labels": {"app": "db"}, "annotations": {"example.com/role": "replica"}}
IMPORTED = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "disks": [
                {"name": "plain", "type": "PersistentVolumeClaim", "source": {"name": "one", "import": {"http": {"url": "http://h/i"}}}},
                {
                    "name": "stored",
                    "type": "PersistentVolumeClaim",
                    "source": {
                        "name": "three",
                        "import": {"s3": {"endpoint": "http://h", "bucket": "abc", "key": "k", "secretRef": {"name": "keys"}}},
                    },
                },
                {
                    "name": "cd",
                    "type": "PersistentVolumeClaim",
                    "device": "cdrom",
                    "source": {
                        "name": "two",
                        "import": {
                            "http": {"url": "https://h/", "secretRef": {"name": "login"}, "caConfigMapRef": {"name": "ca", "key": "k"}}
                        },
                    },
                },
            ],
        },
    }
)
TOKEN = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "disks": [
                {
                    "name": "account",
                    "type": "ServiceAccount",
                    "source": {"name": "robot", "audience": "vault", "expirationSeconds": 3600},
                }
            ],
        },
    }
)
CLAIMS: dict[str, Object | None] = {"myvolumeclaim": {"spec": {"volumeMode": "Filesystem"}}, "raw": {"spec": {"volumeMode": "Block"}}}
NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
PLACED = a_vm(
    nodeSelector={"kubevirt.io/hostname": "node1"},
    nodeName="node1",
    tolerations=[{"operator": "Exists"}],
    topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    priorityClassName="high",
    schedulerName="other-scheduler",
    affinity={
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM, TERM]}},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": NEAR}]},
    },
)
UEFI = a_vm(
    domain={
        "firmware": {"bootloader": {"efi": {"persistent": True}}, "persistentState": {"claimName": "State"}},
        "devices": {"tpm": {"persistent": True}},
    }
)
MOVE = Placement(kvm=True, not_on_node="node1", node_selector={"kubevirt.io/hostname": "node2"})

SHARES = a_vm(
    domain={
        "cpu": {"cores": 2},
        "memory": {"guest": "1Gi"},
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "3", "memory": "1.5Gi"}},
    }
)
DEDICATED = a_vm(domain={"cpu": {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}, "memory": {"guest": "1Gi"}})

PAGES = a_vm(
    domain={
        "cpu": {"cores": 4},
        "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
        "ioThreads": {"count": 2},
        "devices": {"networkInterfaceMultiqueue": True, "graphics": []},
    }
)

PROCESSOR = a_vm(
    nodeSelector={"disk": "ssd", "cpu-feature.node.kubevirt.io/x2apic": "measured"},
    affinity=PLACED["spec"]["affinity"],
    domain={"cpu": {"model": "EPYC", "features": [{"name": "avx2"}, {"name": "x2apic", "policy": "require"}]}, "devices": {"graphics": []}},
)
LESS = a_vm(
    affinity={"nodeAffinity": PLACED["spec"]["affinity"]["nodeAffinity"]},
    domain={
        "cpu": {
            "model": "Skylake-Client",
            "features": [
                {"name": "hle", "policy": "disable"},
                {"name": "rtm", "policy": "forbid"},
                {"name": "aes"},
                {"name": "pcid", "policy": "force"},
                {"name": "ssbd", "policy": "optional"},
            ],
        },
        "devices": {"graphics": []},
    },
)
HOST = a_vm(domain={"cpu": {"model": "host-model"}, "devices": {"graphics": []}})
MOVE_HOST = replace(MOVE, source_labels={"host-model-cpu.node.kubevirt.io/EPYC-Rome": "true", "cpu-feature.node.kubevirt.io/avx2": "true"})

NETWORKS = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [
                {"name": "default"},
                {"name": "lan", "network": "lan", "mac": "52-54-00-AA-BB-CC"},
                {"name": "wan", "type": "bridge", "network": "default/wan"},
                {"name": "card", "type": "sriov", "network": "fast", "deviceName": "intel.com/sriov"},
            ],
        },
    }
)
MACVTAP = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [{"name": each, "type": "macvtap", "network": each} for each in ("lan", "wan")],
        },
    }
)
PASST = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [
                {"name": "default", "type": "passt", "ports": [{"name": "ssh", "port": 22}, {"port": 53, "protocol": "UDP"}]},
            ],
        },
    }
)
VSOCK = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"graphics": [], "interfaces": [], "vsock": {"model": "virtio"}}})
FILESYSTEMS = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [],
            "filesystems": [
                {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "Shared"}},
                {"name": "fixed", "type": "PersistentVolumeClaim", "source": {"name": "other"}, "readOnly": True},
                {"name": "settings", "type": "ConfigMap", "source": {"name": "settings"}},
                {"name": "passwords", "type": "Secret", "source": {"name": "passwords"}},
            ],
        },
    }
)

NETWORK_DISKS = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [],
            "disks": [
                {"name": "data", "type": "NBD", "source": {"host": "nbd.example", "tlsSecretRef": {"name": "nbd-certificates"}}},
                {
                    "name": "unit",
                    "type": "ISCSI",
                    "source": {"targetPortal": "iscsi.example", "iqn": "iqn.2026-01.example:vms", "secretRef": {"name": "chap"}},
                },
                {"name": "file", "type": "NFS", "source": {"host": "nfs.example", "path": "/vms/disk.img"}},
                {"name": "image", "type": "RBD", "source": {"monitors": ["ceph.example"], "image": "vm-1", "secretRef": {"name": "key"}}},
            ],
        },
    }
)

PLUGIN_DISKS = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [],
            "disks": [
                {"name": "data", "type": "Plugin", "source": {"plugin": "images", "options": {"image": "a"}}},
                {"name": "copy", "type": "Plugin", "source": {"plugin": "copies", "sizeLimit": "1Gi"}},
            ],
        },
    }
)

HOST_DISKS = a_vm(
    domain={
        "memory": {"guest": "128Mi"},
        "devices": {
            "graphics": [],
            "interfaces": [],
            "disks": [{"name": "data", "type": "HostDisk", "source": {"path": "/var/vms/a.img", "create": {"size": "1Gi"}}}],
        },
    }
)

LOGGED = a_vm(domain={"memory": {"guest": "128Mi"}, "devices": {"graphics": [], "interfaces": [], "logSerialConsole": True}})

PODS = {
    "logged-console": launcher_pod(LOGGED, 1, {}, SETTINGS, Placement()),
    "host-disks": launcher_pod(HOST_DISKS, 1, {}, SETTINGS, Placement()),
    "plugin-disks": launcher_pod(PLUGIN_DISKS, 1, {}, SETTINGS, Placement()),
    "network-disks": launcher_pod(NETWORK_DISKS, 1, {}, SETTINGS, Placement()),
    "filesystems": launcher_pod(FILESYSTEMS, 1, {}, SETTINGS, Placement()),
    "vsock": launcher_pod(VSOCK, 1, {}, SETTINGS, Placement()),
    "passt": launcher_pod(PASST, 1, {}, SETTINGS, Placement()),
    "networks": launcher_pod(NETWORKS, 1, {}, SETTINGS, Placement()),
    "macvtap": launcher_pod(MACVTAP, 1, {}, SETTINGS, Placement()),
    "processor": launcher_pod(PROCESSOR, 1, {}, SETTINGS, Placement(kvm=True)),
    "processor-with-less": target_pod(LESS, a_migration(), 1, {}, SETTINGS, MOVE),
    "processor-of-the-node": target_pod(HOST, a_migration(), 1, {}, SETTINGS, MOVE_HOST),
    "hugepages": launcher_pod(PAGES, 1, {}, SETTINGS, Placement()),
    "shares": launcher_pod(SHARES, 1, {}, SETTINGS, Placement()),
    "dedicated": launcher_pod(DEDICATED, 1, {}, SETTINGS, Placement()),
    "tiny": launcher_pod(TINY, 1, {}, SETTINGS, Placement()),
    "disks": launcher_pod(DISKS, 2, CLAIMS, SETTINGS, Placement(kvm=True, avoid_nodes=("node1", "node2"))),
    "service-account": launcher_pod(TOKEN, 1, {}, SETTINGS, Placement()),
    "first-boot": launcher_pod(FIRST_BOOT, 1, {}, SETTINGS, Placement()),
    "imported": launcher_pod(IMPORTED, 1, {}, SETTINGS, Placement()),
    "persistent-uefi-and-tpm": launcher_pod(UEFI, 1, {}, SETTINGS, Placement()),
    "copied": launcher_pod(COPIED, 1, {}, SETTINGS, Placement()),
    "placed": launcher_pod(PLACED, 1, {}, SETTINGS, Placement()),
    "target": target_pod(PLACED, a_migration(), 1, {}, SETTINGS, MOVE),
}


@pytest.mark.parametrize("name", PODS)
def test_the_pod_is_as_reviewed(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    text = json.dumps(PODS[name], indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("name", PODS)
def test_the_pod_passes_pod_security_restricted(name: str) -> None:
    """Rules that a pod can break, from https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    spec = PODS[name]["spec"]
    allowed = {"emptyDir", "persistentVolumeClaim", "image", "projected"}
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        security = container["securityContext"]
        assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


DISK = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["Image", "PersistentVolumeClaim", "Secret", "ConfigMap", "CloudInitNoCloud", "DownwardAPI", "ServiceAccount"]
        )
    },
    optional={"device": st.sampled_from(["disk", "cdrom"]), "readOnly": st.booleans(), "sizeLimit": st.sampled_from(["1Mi", "10Gi", "7G"])},
)


def a_disk(drawn: Object) -> Object:
    disk = {key: value for key, value in drawn.items() if key != "sizeLimit"}
    if drawn["type"] == "CloudInitNoCloud":
        return disk | {"source": {"userData": "x", "metaDataSecretRef": {"name": "s"}}}
    if drawn["type"] == "DownwardAPI":
        return disk | {"source": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    if drawn["type"] != "Image":
        return disk | {"source": {"name": "c"}}
    overlaid = drawn.get("device") != "cdrom" and not drawn.get("readOnly")
    return disk | {"source": {"reference": "a"} | ({"sizeLimit": drawn["sizeLimit"]} if overlaid and "sizeLimit" in drawn else {})}


@given(
    st.lists(DISK, max_size=5),
    st.booleans(),
    st.sampled_from([None, [], [{"type": "vnc"}, {"type": "spice"}]]),
    st.sampled_from([None, []]),
    st.sampled_from([None, "Block", "Filesystem"]),
    st.booleans(),
)
def test_guest_cannot_fill_any_volume_of_its_pod(
    drawn: list[Object], kernel: bool, graphics: Any, interfaces: Any, mode: str | None, target: bool
) -> None:
    domain: Object = {"devices": {"disks": [a_disk(each) for each in drawn], "graphics": graphics, "interfaces": interfaces}}
    if kernel:
        domain["firmware"] = {"kernelBoot": {"container": {"image": "registry.example/kernel:v1", "kernelPath": "/vmlinuz"}}}
    vm, claims = a_vm(domain=domain), {"c": {"spec": {"volumeMode": mode}}}
    pod = target_pod(vm, a_migration(), 1, claims, SETTINGS, MOVE) if target else launcher_pod(vm, 1, claims, SETTINGS, Placement())

    assert unbounded(pod["spec"]) == []
    assert pod["spec"]["enableServiceLinks"] is pod["spec"]["automountServiceAccountToken"] is False
    (container,) = pod["spec"]["containers"]
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert all(requests[each] == limits[each] for each in ("memory", "ephemeral-storage"))
    in_memory = sum(quantity.parse(each["emptyDir"]["sizeLimit"]).bytes for each in volumes(pod) if each["emptyDir"].get("medium"))
    assert quantity.parse(limits["memory"]).bytes >= requirements(vm, {}).overhead_bytes > in_memory
    on_disk = sum(quantity.parse(each["emptyDir"]["sizeLimit"]).bytes for each in volumes(pod) if not each["emptyDir"].get("medium"))
    assert quantity.parse(limits["ephemeral-storage"]).bytes >= on_disk + LOG_BYTES - MIB
    assert all(each.get("readOnly") for each in container["volumeMounts"] if each["mountPath"].startswith(f"{layout.IMAGES_DIRECTORY}/"))


def volumes(pod: Object) -> list[Object]:
    return [each for each in pod["spec"]["volumes"] if "emptyDir" in each]


@pytest.mark.parametrize("limit", ["1Mi", "4Gi", "1Ti"])
def test_overlay_volume_holds_a_fully_written_disk(limit: str) -> None:
    """qcow2 needs 8 + 2 bytes per cluster of 64 KiB, and a few clusters."""
    size = quantity.parse(limit).bytes
    vm = a_vm(domain={"devices": {"disks": [{"type": "Image", "source": {"reference": "a", "sizeLimit": limit}}]}})

    assert overlays_bytes(vm["spec"]["domain"]) >= size + 10 * size // (64 << 10) + MIB
    assert overlays_bytes(vm["spec"]["domain"]) < size * 1.001 + 3 * MIB


def test_the_pod_outlives_the_grace_period_of_its_guest() -> None:
    assert PODS["disks"]["spec"]["terminationGracePeriodSeconds"] > 60


def test_only_a_guaranteed_pod_gets_dedicated_processors() -> None:
    """https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#guaranteed, and whole processors."""
    resources = {name: PODS[name]["spec"]["containers"][0]["resources"] for name in PODS}
    shares, dedicated = (resources[name] for name in ("shares", "dedicated"))
    assert all(quantity.parse(dedicated["requests"][each]) == quantity.parse(dedicated["limits"][each]) for each in ("cpu", "memory"))
    assert dedicated["limits"]["cpu"] == "3"
    assert shares["requests"]["memory"] != shares["limits"]["memory"]
    assert "cpu" not in resources["disks"]["limits"]


def test_huge_pages_are_no_part_of_the_pods_memory() -> None:
    """https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/: requests equal limits, and a volume of that medium."""
    resources = PODS["hugepages"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["hugepages-2Mi"] == resources["limits"]["hugepages-2Mi"] == str(1 << 30)
    assert quantity.parse(resources["limits"]["memory"]).bytes < 1 << 30
    assert "hugepages-2Mi" not in PODS["disks"]["spec"]["containers"][0]["resources"]["limits"]


def test_pod_has_the_memory_that_its_guest_may_get() -> None:
    vm = a_vm(domain={"memory": {"guest": "256Mi", "maxGuest": "1Gi"}})
    vm["status"] = {"podResize": {"guestMemoryBytes": 512 * MIB}}
    assert requirements(vm, {}) == requirements(a_vm(domain={"memory": {"guest": "512Mi"}}), {})
    found = resized(vm, {}, 1024 * MIB)
    pod = launcher_pod(a_vm(domain={"memory": {"guest": "1Gi"}}), 1, {}, SETTINGS, Placement())
    whole = pod["spec"]["containers"][0]["resources"]
    assert found == {each: {"memory": whole[each]["memory"]} for each in ("requests", "limits")}


def test_queues_and_threads_are_counted() -> None:
    def overhead(**domain: Any) -> int:
        return requirements(a_vm(domain=domain), {}).overhead_bytes

    cores = {"cpu": {"cores": 4}}
    assert overhead(**cores, devices={"networkInterfaceMultiqueue": True}) - overhead(**cores) == 3 * MIB
    assert overhead(ioThreads={"count": 3}) - overhead() == 6 * MIB


def test_only_a_filesystem_claim_asks_for_a_group() -> None:
    def group(claims: dict[str, Any]) -> Any:
        vm = a_vm(domain={"devices": {"disks": [{"type": "PersistentVolumeClaim", "source": {"name": "c"}}]}})
        return launcher_pod(vm, 1, claims, SETTINGS, Placement())["spec"]["securityContext"].get("fsGroup")

    assert group({"c": {"spec": {"volumeMode": "Block"}}}) is None
    assert group({"c": {"spec": {}}}) == 107


def test_machine_labels_reach_the_pod_except_ours() -> None:
    vm = a_vm()
    vm["metadata"]["labels"] = {"app": "db", "kubevirt.io/created-by": "somebody-else"}
    labels = launcher_pod(vm, 1, {}, SETTINGS, Placement())["metadata"]["labels"]
    assert labels["app"] == "db"
    assert labels["kubevirt.io/created-by"] == vm["metadata"]["uid"]


def test_overhead_covers_what_was_measured() -> None:
    """A guest of 128 MiB in emulation: 28 (launcher) + 32 (libvirtd) + 106 MiB (QEMU beyond the guest)."""
    assert requirements(TINY, {}).overhead_bytes >= 166 * MIB


@pytest.mark.parametrize(
    ("acceleration", "offered", "asks"), [("auto", True, True), ("auto", False, False), ("kvm", False, True), ("emulation", True, False)]
)
def test_kvm_is_asked_for_where_it_can_be_had_or_is_ordered(acceleration: Any, offered: bool, asks: bool) -> None:
    assert Settings("launcher", acceleration=acceleration).wants_kvm(offered=offered) is asks


EXAMPLES = Path(__file__).parents[5] / "examples"
MACHINES = [
    pytest.param(each, id=path.name)
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    if each and each["kind"] == "VirtualMachine"
]


@pytest.mark.parametrize("example", MACHINES)
def test_the_pods_of_all_examples_can_fill_nothing(example: Object) -> None:
    vm = a_vm(**example["spec"])
    claims = dict.fromkeys(disk_claims.claims_of(vm))
    for pod in (launcher_pod(vm, 1, claims, SETTINGS, Placement()), target_pod(vm, a_migration(), 1, claims, SETTINGS, MOVE)):
        assert unbounded(pod["spec"]) == []


def test_target_has_the_coming_cards_network_under_its_own_link() -> None:
    """A card of this name may get another network while the guest moves."""
    cards = [{"name": "default"}, {"name": "lan", "network": "lan", "mac": "52:54:00:00:00:77"}]
    domain = {"memory": {"guest": "64Mi"}, "devices": {"interfaces": cards}}
    vm = a_vm(phase="Running", domain=domain)
    vm["status"]["running"] = {"generation": 1, "domain": {**domain, "devices": {"interfaces": cards[:1]}}}
    pod = target_pod(vm, a_migration(), 1, {}, SETTINGS, MOVE, coming=["lan"])
    (link,) = json.loads(pod["metadata"]["annotations"][attachments.ANNOTATION])
    assert link["interface"] == attachments.link_of_network("lan", f"{link['namespace']}/lan")
    assert attachments.ANNOTATION not in target_pod(vm, a_migration(), 1, {}, SETTINGS, MOVE)["metadata"]["annotations"]


def test_the_examples_were_found() -> None:
    assert len(MACHINES) >= 3


@pytest.mark.parametrize("machines", [{"kubevirt.io/hostname": "node1"}, {"kubernetes.io/hostname": "node1"}, {}])
@pytest.mark.parametrize("migrations", [{"kubevirt.io/hostname": "node2"}, {"kubernetes.io/hostname": "node2"}, {}])
def test_a_host_is_pinned_by_either_label_and_a_migrations_wins(machines: Object, migrations: Object) -> None:
    vm = a_vm(nodeSelector={**machines, "disk": "ssd"})
    expected = next(iter((migrations or machines).values()), None)
    pod = target_pod(vm, a_migration(), 1, {}, SETTINGS, Placement(not_on_node="node9", node_selector=migrations))
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd", **({"kubernetes.io/hostname": expected} if expected else {})}


def test_the_label_of_a_migration_wins_over_both_of_a_machine() -> None:
    vm = a_vm(nodeSelector={"kubernetes.io/hostname": "node1", "kubevirt.io/hostname": "node1"})
    pod = target_pod(vm, a_migration(), 1, {}, SETTINGS, Placement(node_selector={"kubernetes.io/hostname": "node2"}))
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node2"}

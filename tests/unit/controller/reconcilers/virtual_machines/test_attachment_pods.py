from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from apiserver.apis.meta.objects import name_of
from apiserver.apis.virt.places import layout, names, shape
from apiserver.apis.virt.spec import hot_plug, live_changes
from apiserver.client.informer import Informer
from apiserver.client.store import Store
from controller.reconcilers.actions import Action, CreatePod, DeletePod, Emit, RemoveFinalizer, Requeue, ResizePod, WriteStatus
from controller.reconcilers.indexes import BY_HELD_STORAGE, BY_OWNER, Informers, held_storage_of_vm
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.pods import ownership
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import attachment_pods
from controller.reconcilers.virtual_machines import virtual_machine_plan as planning
from controller.reconcilers.virtual_machines.gathering import Gathering
from controller.reconcilers.virtual_machines.observed import Observed
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
NONE: Any = None
DISK = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
CLAIM: dict[str, Any] = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def a_machine(
    *, wanted: bool = True, runs: bool = False, phase: str = "Running", entries: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    labels = {"app": "web"}
    vm = a_vm(phase=phase, attempts=[an_attempt(nodeName="node1")], affinity={"podAntiAffinity": {}}, nodeSelector={"a": "b"})
    vm["metadata"]["labels"] = labels
    vm["spec"]["domain"]["devices"] = {"disks": [DISK] if wanted else []}
    vm["status"] |= {"nodeName": "node1", "domain": {"liveChanges": ["disk"]}}
    if entries:
        vm["status"]["volumeStatus"] = list(entries)
    if wanted != runs:
        domain = {"memory": {"guest": "128Mi"}, "devices": {"disks": [DISK] if runs else []}}
        vm["status"]["running"] = {"generation": 1, "domain": domain}
    return vm


def disk_of(vm: dict[str, Any]) -> dict[str, Any]:
    return next(iter((*hot_plug.added(vm), *hot_plug.kept(vm), *hot_plug.removed(vm))))


def an_attachment(vm: dict[str, Any], **more: Any) -> dict[str, Any]:
    pod = a_pod(**more)
    pod["metadata"] |= {"name": hot_plug.pod_name(vm, disk_of(vm)), "uid": "uid-of-attachment"}
    return pod


def attached(vm: dict[str, Any]) -> dict[str, Any]:
    volume = {"attachPodName": hot_plug.pod_name(vm, disk_of(vm)), "attachPodUID": "uid-of-attachment"}
    return {"name": "data", "claimName": "data", "phase": "AttachedToNode", "hotplugVolume": volume}


def gathering_of(informers: Informers) -> Gathering:
    return Gathering(NONE, NONE, Settings("launcher"), informers, NONE, targets=NONE, elapsed=NONE)


def plan(
    vm: dict[str, Any],
    *pods: dict[str, Any],
    claim: dict[str, Any] | None = CLAIM,
    own: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[Action, ...]:
    seen = Observed(
        vm=vm, pods=(own or a_pod(),), claims={"data": claim}, now=NOW, settings=Settings("launcher"), attachment_pods=pods, **more
    )
    return attachment_pods.plan(seen)


def entries(actions: tuple[Action, ...]) -> list[dict[str, Any]]:
    return next(each.status.get("volumeStatus", []) for each in actions if isinstance(each, WriteStatus))


def deleted(actions: tuple[Action, ...]) -> list[str]:
    return [each.uid for each in actions if isinstance(each, DeletePod)]


def test_new_disk_gets_a_pod_on_the_guests_node() -> None:
    vm = a_machine()
    actions = plan(vm)
    (made,) = (each.pod for each in actions if isinstance(each, CreatePod))
    spec, (container,) = made["spec"], made["spec"]["containers"]
    assert shape.fits(made)
    assert ownership.is_attachment(made, vm)
    assert ownership.is_controlled_by(made, vm)
    assert not ownership.is_attachment(a_pod(), vm)
    assert {each["mountPath"] for each in container["volumeMounts"]} == {layout.RUN_DIRECTORY, layout.ATTACHMENT_DIRECTORY}
    assert [each["persistentVolumeClaim"] for each in spec["volumes"] if "persistentVolumeClaim" in each] == [{"claimName": "data"}]
    assert spec["affinity"] == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]
            }
        }
    }
    assert {"key": "kubevirt.io/non-operational", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert not {"nodeSelector", "nodeName"} & spec.keys()
    assert set(made["metadata"]["labels"]) == {names.COMPONENT_LABEL, names.VM_NAME_LABEL, names.CREATED_BY_LABEL}
    assert made["metadata"]["annotations"] == {}
    assert spec["readinessGates"] == [{"conditionType": names.GUEST_RUNNING_GATE}]
    assert container["resources"]["limits"]["ephemeral-storage"] == "1Mi"
    assert (spec["automountServiceAccountToken"], spec["securityContext"]["fsGroup"]) == (False, 107)
    (entry,) = entries(actions)
    assert (entry["phase"], entry["reason"]) == ("Pending", "PodNotRunning")
    assert not [each for each in actions if isinstance(each, Emit)]


def test_running_pod_is_recorded_once() -> None:
    vm = a_machine()
    actions = plan(vm, an_attachment(vm))
    assert entries(actions) == [attached(vm)]
    assert plan(a_machine(entries=(attached(vm),)), an_attachment(vm)) == ()
    assert plan(a_machine(runs=True, entries=(attached(vm),)), an_attachment(vm)) == ()


def test_drive_gets_a_pod_with_the_image() -> None:
    vm = a_machine()
    drive = {"name": "data", "device": "cdrom"}
    vm["spec"]["domain"]["devices"]["disks"] = [
        {**drive, "type": "Image", "source": {"reference": "registry/tools:1", "path": "disk/tools.iso", "pullPolicy": "Always"}}
    ]
    vm["status"]["running"]["domain"]["devices"]["disks"] = [drive]
    assert plan(vm, claim=None) == ()
    vm["status"]["domain"] = {"liveChanges": ["disk.medium"]}
    actions = plan(vm, claim=None)
    (made,) = (each.pod for each in actions if isinstance(each, CreatePod))
    (volume,) = (each for each in made["spec"]["volumes"] if each["name"] == layout.ATTACHMENT_VOLUME)
    assert volume["image"] == {"reference": "registry/tools:1", "pullPolicy": "Always"}
    assert "fsGroup" not in made["spec"]["securityContext"]
    assert [(sorted(each), each["reason"]) for each in entries(actions)] == [(["message", "name", "phase", "reason"], "PodNotRunning")]
    (entry,) = entries(plan(vm, an_attachment(vm), claim=None))
    assert entry["phase"] == "AttachedToNode"
    vm["status"]["volumeStatus"] = [entry]
    hot_plug.record(vm)
    assert "running" not in vm["status"]


def test_block_claim_is_a_device_of_its_pod_if_guest_takes_it() -> None:
    vm, claim = a_machine(), {**CLAIM, "spec": {"volumeMode": "Block"}}
    assert [each["reason"] for each in entries(plan(vm, claim=claim))] == [hot_plug.NEEDS_RESTART]
    vm["status"]["domain"] = {"liveChanges": [hot_plug.DISK, hot_plug.BLOCK]}
    (made,) = (each.pod for each in plan(vm, claim=claim) if isinstance(each, CreatePod))
    (container,) = made["spec"]["containers"]
    assert container["volumeDevices"] == [{"name": layout.ATTACHMENT_VOLUME, "devicePath": layout.ATTACHMENT_DEVICE}]
    assert layout.ATTACHMENT_DIRECTORY not in {each["mountPath"] for each in container["volumeMounts"]}
    vm["spec"]["domain"]["devices"]["disks"] = [{**DISK, "device": "cdrom"}]
    vm["status"]["running"]["domain"]["devices"]["disks"] = [{"name": "data", "device": "cdrom"}]
    vm["status"]["domain"]["liveChanges"].append(hot_plug.MEDIUM)
    assert [each["reason"] for each in entries(plan(vm, claim=claim))] == [hot_plug.NEEDS_RESTART]


BLANK = {"name": "data", "type": "EmptyDisk", "source": {"size": "64Mi"}}
COPY = {"name": "data", "type": "Image", "source": {"reference": "registry/tools:1", "sizeLimit": "64Mi"}}


def a_pod_with(mebibytes: int, actual: int | None = None) -> dict[str, Any]:
    pod = a_pod()
    pod["spec"]["containers"] = [{"name": names.CONTAINER, "resources": {"limits": {"memory": f"{mebibytes}Mi"}}}]
    limits = {"limits": {"memory": f"{actual or mebibytes}Mi"}}
    pod["status"]["containerStatuses"] = [{"name": names.CONTAINER, "resources": limits}]
    return pod


def with_overlay(disk: dict[str, Any]) -> dict[str, Any]:
    vm = a_machine()
    vm["spec"]["domain"]["devices"]["disks"] = [disk]
    vm["status"]["domain"] = {"liveChanges": [hot_plug.OVERLAY]}
    return vm


@pytest.mark.parametrize(("disk", "volumes"), [(BLANK, ["run", "attachment-overlay"]), (COPY, ["run", "attachment", "attachment-overlay"])])
def test_disk_with_an_overlay_gets_its_space_from_its_pod(disk: dict[str, Any], volumes: list[str]) -> None:
    vm = with_overlay(disk)
    actions = plan(vm, claim=None, own=a_pod_with(4096))
    (made,) = (each.pod for each in actions if isinstance(each, CreatePod))
    (container,) = made["spec"]["containers"]
    assert shape.fits(made)
    assert [each["name"] for each in made["spec"]["volumes"]] == volumes
    assert made["spec"]["volumes"][-1]["emptyDir"] == {"sizeLimit": "67Mi"}
    for amounts in container["resources"].values():
        assert amounts["ephemeral-storage"] == "68Mi"
    assert [(each["reason"], "claimName" in each) for each in entries(actions)] == [("PodNotRunning", False)]
    vm["status"]["volumeStatus"] = entries(plan(vm, an_attachment(vm), claim=None, own=a_pod_with(4096)))
    hot_plug.record(vm)
    assert "running" not in vm["status"]


def test_disk_that_a_migration_copies_waits_for_memory() -> None:
    vm = with_overlay(BLANK)
    few, enough = a_pod_with(64), launcher_pod.resized(vm, {}, 0)["limits"]["memory"]
    actions = plan(vm, an_attachment(vm), own=few)
    (resize,) = (each for each in actions if isinstance(each, ResizePod))
    assert resize.resources["limits"]["memory"] == enough
    assert [each["reason"] for each in entries(actions)] == ["PodResizeInProgress"]
    assert not [each for each in actions if isinstance(each, Emit)]
    mebibytes = int(enough.removesuffix("Mi"))
    actions = plan(vm, an_attachment(vm), own=a_pod_with(mebibytes, actual=64))
    assert [each["reason"] for each in entries(actions)] == ["PodResizeInProgress"]
    assert not [each for each in actions if isinstance(each, ResizePod)]
    actions = plan(vm, an_attachment(vm), own=few, refusals={resize.request: "exceeded quota"})
    assert [(each["reason"], each["message"]) for each in entries(actions)] == [("PodResizeRefused", "exceeded quota")]
    assert [each.reason for each in actions if isinstance(each, Emit)] == ["PodResizeRefused"]
    actions = plan(vm, an_attachment(vm), own=a_pod_with(mebibytes))
    assert [each["phase"] for each in entries(actions)] == ["AttachedToNode"]
    without = a_machine(wanted=False, runs=True)
    assert mebibytes - int(launcher_pod.resized(without, {}, 0)["limits"]["memory"].removesuffix("Mi")) == 17


@pytest.mark.parametrize(
    ("reason", "given"),
    [
        ("ClaimNotFound", {"claim": None}),
        ("ClaimTerminating", {"claim": {**CLAIM, "metadata": {"name": "data", "deletionTimestamp": "2026-01-01T00:00:00Z"}}}),
        ("VolumeModeBlock", {"claim": {**CLAIM, "spec": {"volumeMode": "Block"}}}),
        ("DiskInUse", {"wanted_in_use": {"data": "other"}}),
        ("PodRefused", {"refusals": {hot_plug.pod_name(a_machine(), disk_of(a_machine())): "exceeded quota"}}),
        ("Migrating", {"migrations": (a_migration(phase="Running"),)}),
    ],
)
def test_wait_is_reported_and_no_pod_is_recorded(reason: str, given: dict[str, Any]) -> None:
    vm = a_machine()
    for pods, known in (((), ()), ((an_attachment(vm),), ()), ((an_attachment(vm),), (attached(vm),))):
        actions = plan(a_machine(entries=known), *pods, **given)
        assert not [each for each in actions if isinstance(each, CreatePod)]
        (entry,) = entries(actions)
        assert (entry["phase"], entry["reason"]) == ("Pending", reason)
        assert "hotplugVolume" not in entry
        assert Requeue(attachment_pods.LOOK_SECONDS) in actions
        told = [Emit("Warning", reason, f"disk data: {entry['message']}")] if reason != "Migrating" else []
        assert [each for each in actions if isinstance(each, Emit)] == told
        assert not [each for each in plan(a_machine(entries=(entry,)), *pods, **given) if isinstance(each, Emit)]


@pytest.mark.parametrize("more", [{"refusal": "no"}, {"refusals": {"uid-of-the-pod {'limits': {}}": "no"}}], ids=["attempt", "resize"])
def test_refusal_of_another_request_does_not_stop_a_disk(more: dict[str, Any]) -> None:
    actions = plan(a_machine(), **more)
    assert [each for each in actions if isinstance(each, CreatePod)]
    assert [each["reason"] for each in entries(actions)] == ["PodNotRunning"]


def test_refused_pod_of_a_present_disk_is_not_repeated_at_once() -> None:
    known = a_machine(runs=True, entries=(attached(a_machine()),))
    assert [each for each in plan(known) if isinstance(each, CreatePod)]
    assert plan(known, refusals={hot_plug.pod_name(known, disk_of(known)): "exceeded quota"}) == ()


def test_new_disk_waits_until_its_claim_has_no_other_disk() -> None:
    vm = a_machine()
    domain = {"memory": {"guest": "128Mi"}, "devices": {"disks": [{**DISK, "name": "old", "readOnly": True}]}}
    vm["status"]["running"] = {"generation": 1, "domain": domain}
    for pods in ((), (an_attachment(vm),)):
        (entry,) = entries(plan(vm, *pods))
        assert (entry["reason"], "hotplugVolume" in entry) == ("DiskInUse", False)
        assert entry["message"] == "PersistentVolumeClaim data is in use by disk old of this virtual machine"


@pytest.mark.parametrize(("new", "old"), [({"serial": "a"}, {"serial": "a"}), ({"wwn": "f" * 16}, {"wwn": "F" * 16})])
def test_new_disk_waits_for_the_old_one_of_its_serial(new: dict[str, str], old: dict[str, str]) -> None:
    vm = a_machine()
    vm["spec"]["domain"]["devices"]["disks"] = [{**DISK, **new}]
    disks = [{"name": "old", "type": "PersistentVolumeClaim", "source": {"name": "b"}, **old}]
    vm["status"]["running"] = {"generation": 1, "domain": {"memory": {"guest": "128Mi"}, "devices": {"disks": disks}}}
    (entry,) = entries(plan(vm, an_attachment(vm)))
    assert (entry["reason"], entry["message"]) == (
        "DiskInUse",
        "disk old, which the guest still has, has the same serial or World Wide Name",
    )
    vm["status"]["volumeStatus"] = [attached(vm)]
    hot_plug.record(vm)
    assert [each["name"] for each in vm["status"]["running"]["domain"]["devices"]["disks"]] == ["old"]
    disks[0] |= dict.fromkeys(old, "")
    hot_plug.record(vm)
    assert "data" in [each["name"] for each in vm["status"]["running"]["domain"]["devices"]["disks"]]


def test_pod_on_another_node_is_not_recorded() -> None:
    vm = a_machine()
    (entry,) = entries(plan(vm, an_attachment(vm, node="node2")))
    assert (entry["reason"], "hotplugVolume" in entry) == ("PodNotRunning", False)


def test_pod_stays_until_the_disk_left_the_running_form() -> None:
    vm = a_machine(wanted=False, runs=True)
    entry, pod = attached(vm), an_attachment(vm)
    assert plan(a_machine(wanted=False, runs=True, entries=(entry,)), pod) == ()
    actions = plan(a_machine(wanted=False, entries=(entry,)), pod)
    assert deleted(actions) == ["uid-of-attachment"]
    assert entries(actions) == []


def test_pod_stays_with_the_guests_disk_after_an_edit_to_xml() -> None:
    """Else storage drivers would detach the volume under the guest."""
    vm = a_machine(runs=True)
    edited = a_machine(runs=True, entries=(attached(vm),))
    edited["status"]["running"] = {"generation": 1, "domain": edited["spec"].pop("domain")}
    edited["spec"]["domainXML"] = "<domain/>"
    assert plan(edited, an_attachment(vm)) == ()


def test_pod_goes_after_the_guest_moved_to_another_pod() -> None:
    vm = a_machine(runs=True)
    entry, pod = attached(vm), an_attachment(vm)
    moved = a_machine(runs=True, entries=(entry,))
    moved["status"]["podUID"] = "uid-of-the-target"
    actions = plan(moved, pod)
    assert deleted(actions) == ["uid-of-attachment"]
    assert entries(actions) == []
    assert not [each for each in actions if isinstance(each, CreatePod)]


def test_lost_pod_is_replaced() -> None:
    vm = a_machine(runs=True)
    known = a_machine(runs=True, entries=(attached(vm),))
    assert [name_of(each.pod) for each in plan(known) if isinstance(each, CreatePod)] == [hot_plug.pod_name(vm, disk_of(vm))]
    assert deleted(plan(known, an_attachment(vm, phase="Failed", exit_code=1))) == ["uid-of-attachment"]
    again = an_attachment(vm)
    again["metadata"]["uid"] = "uid-of-the-next"
    (entry,) = entries(plan(known, again))
    assert entry["hotplugVolume"]["attachPodUID"] == "uid-of-the-next"


@pytest.mark.parametrize(("phase", "stays"), [("Stopping", True), ("Unknown", True), ("Stopped", False), ("Scheduling", False)])
def test_pods_end_with_the_guest(phase: str, *, stays: bool) -> None:
    vm = a_machine(runs=True)
    assert deleted(plan(a_machine(runs=True, phase=phase), an_attachment(vm))) == ([] if stays else ["uid-of-attachment"])


def test_guest_of_an_earlier_release_gets_no_pod() -> None:
    vm = a_machine()
    vm["status"]["domain"] = {}
    assert plan(vm) == ()


def test_plan_of_a_machine_includes_its_attachment_pods() -> None:
    seen = Observed(vm=a_machine(), pods=(a_pod(),), claims={"data": CLAIM}, now=NOW, settings=Settings("launcher"))
    made = [each.pod for each in planning.plan(seen) if isinstance(each, CreatePod)]
    assert [name_of(each) for each in made] == [hot_plug.pod_name(seen.vm, disk_of(seen.vm))]


def test_status_is_written_once_in_a_pass() -> None:
    vm = a_machine()
    vm["spec"]["domain"]["memory"] = {"guest": "256Mi"}
    seen = Observed(vm=vm, pods=(a_pod(),), claims={"data": CLAIM}, now=NOW, settings=Settings("launcher"))
    written = [each.status for each in planning.plan(seen) if isinstance(each, WriteStatus)]
    assert [sorted({each["type"] for each in status["conditions"]}) for status in written] == [["RestartRequired"]]


def test_attachment_pods_are_not_gathered_as_guests_pods() -> None:
    vm = a_machine()
    pods = Store({BY_OWNER: ownership.owners_of})
    for each in (a_pod(), an_attachment(vm)):
        pods.apply(each)
    gathering = gathering_of(Informers(NONE, NONE, cast(Informer, pods), NONE, NONE, NONE, NONE, NONE))
    assert [name_of(each) for each in gathering._known_pods(vm, ())] == [name_of(a_pod())]
    assert [name_of(each) for each in gathering._attachment_pods(vm)] == [hot_plug.pod_name(vm, disk_of(vm))]


def test_unrecorded_pod_makes_room_for_the_holder_of_its_claim() -> None:
    vm = a_machine()
    assert deleted(plan(vm, an_attachment(vm), wanted_in_use={"data": "other"})) == ["uid-of-attachment"]
    assert deleted(plan(vm, an_attachment(vm), migrations=(a_migration(phase="Running"),))) == []


RAN = {"runningTime": "2026-01-01T00:00:10Z"}


@pytest.mark.parametrize(
    ("phase", "attempt", "held"),
    [
        pytest.param("Running", {}, {"data": "other"}, id="one with a guest"),
        pytest.param("Scheduling", {}, {"data": "other"}, id="one that starts"),
        pytest.param("Failed", {"result": "Failed", **RAN}, {"data": "other"}, id="one between two starts"),
        pytest.param("Failed", {"result": "Failed"}, {}, id="one that never ran"),
        pytest.param("Succeeded", {"result": "Succeeded", **RAN}, {}, id="one that powered itself off"),
    ],
)
def test_claim_that_another_machine_holds_is_in_use(phase: str, attempt: dict[str, Any], held: dict[str, str]) -> None:
    other = a_machine(runs=True, phase=phase)
    other["metadata"] |= {"name": "other", "uid": "other"}
    other["status"]["attempts"] = [an_attempt(**attempt)]
    vms = Store({BY_HELD_STORAGE: held_storage_of_vm})
    for each in (other, a_machine()):
        vms.apply(each)
    gathering = gathering_of(Informers(cast(Informer, vms), NONE, NONE, NONE, NONE, NONE, NONE, NONE))
    assert gathering._wanted_in_use(a_machine()) == held


@pytest.mark.parametrize(
    ("theirs", "mine", "held"),
    [
        pytest.param(["data"], [], {"data": "other, which gets it first"}, id="theirs"),
        pytest.param([], [], {}, id="nobody's"),
        pytest.param(["data"], ["data"], {}, id="its own, and theirs by an old copy"),
        pytest.param(5, [], {}, id="invalid"),
    ],
)
def test_claim_that_another_machine_has_reserved_is_in_use(theirs: Any, mine: Any, held: dict[str, str]) -> None:
    vms, machines = Store({BY_HELD_STORAGE: held_storage_of_vm}), []
    for name, claims in (("other", theirs), ("testvm", mine)):
        machines.append(a_machine())
        machines[-1]["metadata"] |= {"name": name, "uid": name}
        machines[-1]["status"]["running"] |= {"reservedClaims": claims} if claims else {}
        vms.apply(machines[-1])
    gathering = gathering_of(Informers(cast(Informer, vms), NONE, NONE, NONE, NONE, NONE, NONE, NONE))
    assert gathering._wanted_in_use(machines[-1]) == held


def test_new_disk_says_why_its_pod_does_not_run() -> None:
    """An obstacle ends the reservation, so another machine may have the claim; a slow pod keeps it."""
    vm = a_machine()
    refused = an_attachment(vm, phase="Pending", node="")
    refused["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no volume here"}]
    fresh, slow = (an_attachment(vm, phase="Pending", bound_at=f"2026-01-01T00:00:{second}Z") for second in ("30", "00"))
    for pod, reason, text in ((refused, "Unschedulable", "no volume here"), (slow, "ContainerCreating", "kubectl describe pod")):
        actions = plan(vm, pod)
        (entry,) = entries(actions)
        assert (entry["phase"], entry["reason"], text in entry["message"]) == ("Pending", reason, True)
        assert [each.reason for each in actions if isinstance(each, Emit)] == [reason]
        assert deleted(actions) == []
    actions = plan(vm, fresh)
    assert [each["reason"] for each in entries(actions)] == ["PodNotRunning"]
    assert [each for each in actions if isinstance(each, Requeue)] == [Requeue(30.0)]


IMPORTED: dict[str, Any] = {
    **DISK,
    "readOnly": True,
    "source": {
        "name": "data",
        "import": {"http": {"url": "https://server/x", "secretRef": {"name": "login"}, "caConfigMapRef": {"name": "ca"}}},
    },
}


def with_import(*, runs: bool = False, recorded: bool = False, **more: Any) -> dict[str, Any]:
    vm = a_machine(runs=runs, **more)
    vm["spec"]["domain"]["devices"]["disks"] = [IMPORTED]
    if recorded:
        vm["status"]["volumeStatus"] = [attached(vm)]
    return vm


def test_pod_has_what_an_import_needs() -> None:
    plain, made = (next(each.pod for each in plan(vm) if isinstance(each, CreatePod)) for vm in (a_machine(), with_import()))
    (container,) = made["spec"]["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts[layout.ATTACHMENT_DIRECTORY] == {"name": layout.ATTACHMENT_VOLUME, "mountPath": layout.ATTACHMENT_DIRECTORY}
    assert layout.ATTACHMENT_IMPORT_DIRECTORY in mounts
    sources = {each["name"]: each["projected"]["sources"] for each in made["spec"]["volumes"] if "projected" in each}
    assert sources[mounts[f"{layout.IMPORT_SECRETS_DIRECTORY}/attachment"]["name"]] == [{"secret": {"name": "login"}}]
    (authorities,) = sources[mounts[f"{layout.IMPORT_AUTHORITIES_DIRECTORY}/attachment"]["name"]]
    assert authorities["configMap"]["name"] == "ca"
    memory = [each["spec"]["containers"][0]["resources"]["limits"]["memory"] for each in (plain, made)]
    assert memory == ["36Mi", "293Mi"]
    assert shape.fits(made)


@pytest.mark.parametrize("deleting", [False, True])
def test_attempt_ends_after_the_pod_that_may_write_an_image(*, deleting: bool) -> None:
    vm = with_import(runs=True, recorded=True)
    if deleting:
        vm["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names.VM_FINALIZER]}
    pod, over = an_attachment(vm), an_attachment(vm, phase="Failed", exit_code=1)
    for pods, waits in (((pod,), True), ((over,), False), ((), False)):
        seen = Observed(vm=vm, pods=(), claims={"data": CLAIM}, now=NOW, settings=Settings("launcher"), attachment_pods=pods)
        actions = planning.plan(seen)
        ends = [each for each in actions if isinstance(each, RemoveFinalizer if deleting else WriteStatus)]
        assert bool(ends) is not waits, actions
        assert (deleted(actions)[:1] == ["uid-of-attachment"]) is waits


def test_pods_of_disks_and_of_the_guest_change_in_two_passes() -> None:
    vm = a_machine()
    vm["spec"]["domain"]["memory"] = {"guest": "512Mi", "maxGuest": "1Gi"}
    vm["status"]["running"]["domain"]["memory"] = {"guest": "128Mi", "maxGuest": "1Gi"}
    vm["status"]["domain"] = {"liveChanges": [*live_changes.KNOWN]}
    found = []
    for _ in range(2):
        seen = Observed(vm=vm, pods=(a_pod(),), claims={"data": CLAIM}, now=NOW, settings=Settings("launcher"))
        actions = planning.plan(seen)
        found.append({type(each) for each in actions} & {WriteStatus, ResizePod})
        vm["status"] = next((each.status for each in actions if isinstance(each, WriteStatus)), vm["status"])
    assert found == [{WriteStatus}, {ResizePod}]


def test_attempt_ends_before_pods_that_write_no_image() -> None:
    vm = a_machine(runs=True)
    vm["status"]["volumeStatus"] = [attached(vm)]
    seen = Observed(vm=vm, pods=(), claims={"data": CLAIM}, now=NOW, settings=Settings("launcher"), attachment_pods=(an_attachment(vm),))
    assert [each.status["phase"] for each in planning.plan(seen) if isinstance(each, WriteStatus)] == ["Failed"]

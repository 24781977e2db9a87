from __future__ import annotations

import copy
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import is_deleting, name_of, uid_of
from apiserver.apis.virt.lifecycle import departure, phases
from apiserver.apis.virt.lifecycle.migration_policies import Defaults
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import attachments
from apiserver.apis.virt.v1alpha1 import status_validation
from controller.reconcilers.actions import Action, CreatePod, DeletePod, Emit, RemoveFinalizer, Requeue, WriteStatus
from controller.reconcilers.migrations.migration_bounds import PREPARE_SECONDS
from controller.reconcilers.migrations.migration_plan import (
    HANDLER_SECONDS,
    LAST_WORDS_SECONDS,
    SOURCE_END_SECONDS,
    Observed,
    begins,
    may_bring,
    outcome_event,
    plan,
    relies_on_node,
)
from controller.reconcilers.pods import mounted_sources, networks, pod_state, sandboxes
from controller.reconcilers.pods.kubelet_events import KubeletEvents
from controller.reconcilers.settings import Settings
from controller.reconcilers.trimming import trim_pod
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
SOURCE = names.launcher_pod_name("testvm", UID, 1)
TARGET = names.target_pod_name("testvm", "migration-uid")
SIDES: dict[str, Any] = {"sourcePod": SOURCE, "targetPod": TARGET, "sourceNode": "node1"}
ENDED = "2026-01-01T00:01:00Z"
UNFINISHED = ("Scheduling", "PreparingTarget", "TargetReady", "Running")


def a_running_vm(pod: str = SOURCE) -> dict[str, Any]:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"podName": pod, "nodeName": "node1"}
    return vm


def test_first_target_is_made_for_coming_cards() -> None:
    vm = a_running_vm()
    vm["status"]["running"] = {"generation": 1, "domain": {**vm["spec"]["domain"], "devices": {"interfaces": []}}}
    vm["spec"]["domain"] = {**vm["spec"]["domain"], "devices": {"interfaces": [{"name": "lan", "network": "lan"}]}}
    (pod,) = (each.pod for each in plan(seen(a_migration(), vm=vm, coming=("lan",))) if isinstance(each, CreatePod))
    assert "lan" in pod["metadata"]["annotations"][attachments.ANNOTATION]
    assert may_bring(a_migration())
    assert not may_bring(a_migration(phase="Pending", attempt=2))
    assert not may_bring(a_migration(phase="Scheduling"))


def a_target(**rest: Any) -> dict[str, Any]:
    return a_pod(migration="migration-uid", **{"node": "node2", **rest})


def seen(migration: dict[str, Any], **rest: Any) -> Observed:
    given: dict[str, Any] = {
        "vm": a_running_vm(),
        "source": a_pod(),
        "target": None,
        "claims": {},
        "now": NOW,
        "settings": Settings("launcher"),
    }
    return Observed(migration=migration, **{**given, **rest})


def outcome(actions: tuple[Action, ...]) -> tuple[str, str]:
    status = next(each.status for each in actions if isinstance(each, WriteStatus))
    assert not status_validation.validate_migration_status({"status": status}, {})
    return status["phase"], status["message"]


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(each).__name__ for each in actions]


def test_a_running_machine_gets_a_target_pod_anywhere_but_here() -> None:
    actions = plan(seen(a_migration()))
    assert kinds(actions) == ["CreatePod", "WriteStatus", "Emit"]
    create = actions[0]
    assert isinstance(create, CreatePod)
    rule = create.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert rule == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]}]
    assert create.pod["metadata"]["labels"][names.MIGRATION_LABEL] == "migration-uid"
    assert outcome(actions)[0] == "Scheduling"
    write = actions[1]
    assert isinstance(write, WriteStatus)
    assert write.uid_field == "targetPodUID"
    assert write.status["sourcePodUID"] == uid_of(a_pod())


def test_a_machine_with_kvm_asks_for_kvm_on_the_target() -> None:
    source = a_pod()
    source["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    create = plan(seen(a_migration(), source=source))[0]
    assert isinstance(create, CreatePod)
    assert create.pod["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] == "1"


def test_the_status_says_how_the_guest_moves_from_the_beginning() -> None:
    policy = {"metadata": {"name": "slow"}, "spec": {"bandwidth": "10Mi", "allowPause": True}}
    settings = dataclasses.replace(Settings("launcher"), migrations=Defaults(completion_timeout_per_gib=20))
    vm = a_running_vm()
    vm["spec"]["domain"]["memory"] = {"guest": "1500Mi"}
    for chosen, name in ((policy, "slow"), (None, None), ({}, None)):
        actions = plan(seen(a_migration(), vm=vm, policy=chosen, settings=settings))
        assert outcome(actions)[0] == "Scheduling"
        status = next(each.status for each in actions if isinstance(each, WriteStatus))
        assert status.get("policy") == name
        assert status["options"] == {
            "bandwidth": "10Mi" if name else "0",
            "allowAutoConverge": False,
            "allowPause": bool(name),
            "completionTimeoutSeconds": 40,
        }
        assert begins(actions)


def test_disks_that_are_copied_along_give_it_more_time() -> None:
    settings = dataclasses.replace(Settings("launcher"), migrations=Defaults(completion_timeout_per_gib=20))
    vm = a_running_vm()
    blank = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "3Gi"}}
    claim = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data", "create": {"size": "90Gi"}}}
    vm["spec"]["domain"] |= {"memory": {"guest": "1Gi"}, "devices": {"disks": [blank, claim]}}
    actions = plan(seen(a_migration(), vm=vm, settings=settings, claims={"data": {"spec": {"accessModes": ["ReadWriteMany"]}}}))
    status = next(each.status for each in actions if isinstance(each, WriteStatus))
    assert status["options"]["completionTimeoutSeconds"] == 80


@pytest.mark.parametrize("phase", UNFINISHED)
def test_recorded_policy_and_options_are_not_rewritten(phase: str) -> None:
    options = {"bandwidth": "5Mi"}
    policy = {"metadata": {"name": "other"}, "spec": {"bandwidth": "10Mi"}}
    migration = a_migration(phase=phase, **SIDES, targetNode="node2", policy="slow", options=options)
    actions = plan(seen(migration, target=a_target(), policy=policy))
    assert not begins(actions)
    for each in actions:
        if isinstance(each, WriteStatus):
            assert (each.status["policy"], each.status["options"]) == ("slow", options)


def a_source_with_kvm() -> dict[str, Any]:
    source = a_pod()
    source["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    return source


SOURCE_LABELS = {"cpu-feature.node.kubevirt.io/aes": "true", "host-model-cpu.node.kubevirt.io/EPYC": "true"}


def test_host_model_guest_moves_only_to_equal_or_better_nodes() -> None:
    labels = {**SOURCE_LABELS, "cpu-model.node.kubevirt.io/EPYC": "true"}
    create = plan(seen(a_migration(), source=a_source_with_kvm(), source_labels=labels))[0]
    assert isinstance(create, CreatePod)
    assert create.pod["spec"]["nodeSelector"] == SOURCE_LABELS


@pytest.mark.parametrize(
    ("phase", "source", "model", "relies"),
    [
        ("", a_source_with_kvm(), "host-model", True),
        ("Pending", a_source_with_kvm(), "", True),
        ("Scheduling", a_source_with_kvm(), "", False),
        ("", a_pod(), "", False),
        ("", a_source_with_kvm(), "EPYC", False),
        ("", None, "", False),
    ],
)
def test_the_source_is_asked_for_its_labels_where_they_count(phase: str, source: Any, model: str, *, relies: bool) -> None:
    vm = a_running_vm()
    vm["spec"]["domain"]["cpu"] = {"model": model}
    assert relies_on_node(a_migration(phase=phase), vm, source) is relies
    assert not relies_on_node(a_migration(phase=phase), None, source)


A_SECRET = {"type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "user"}}}


def kubelet_says(words: str, reason: str) -> KubeletEvents:
    event = {"message": words, "lastTimestamp": "2026-01-01T00:00:30Z"}
    if reason == mounted_sources.FAILED_MOUNT:
        return KubeletEvents(mounts=(mounted_sources.trim_event(event),))
    return KubeletEvents(sandboxes=(sandboxes.trim_event(event),))


@pytest.mark.parametrize(
    ("said", "named", "reason", "message"),
    [
        (
            kubelet_says('MountVolume.SetUp failed for volume "disk-0" : secret "user" not found', "FailedMount"),
            networks.Found(),
            "SecretNotFound",
            (
                "spec.domain.devices.disks[0].source.userDataSecretRef: Secret user not found; the kubelet checks again "
                "within two minutes, and the migration continues once it exists"
            ),
        ),
        (
            kubelet_says('error adding container to network "lan": no such bridge', "FailedCreatePodSandBox"),
            networks.Found(definitions=(networks.Definition("default/lan", "lan"),)),
            "NetworkNotUsable",
            (
                "according to the pod's events, node node2 cannot connect the pod to network default/lan: no such "
                "bridge; the node retries, and the migration continues once that is fixed"
            ),
        ),
        (
            KubeletEvents(),
            networks.Found(missing=("default/lan",)),
            "NetworkNotFound",
            "NetworkAttachmentDefinition not found: default/lan; the migration continues when it exists",
        ),
        (
            KubeletEvents(),
            networks.Found(),
            "ContainerCreating",
            (
                f"node node2 has not prepared the volumes, network or image of pod {TARGET} yet; the pod's events "
                f"have the cause: kubectl describe pod {TARGET}"
            ),
        ),
    ],
    ids=["Secret", "sandbox", "network", "slow"],
)
def test_kubelet_errors_of_the_target_are_reported_until_mounted(
    said: KubeletEvents, named: networks.Found, reason: str, message: str
) -> None:
    vm = a_running_vm()
    vm["spec"]["domain"]["devices"] = {"disks": [A_SECRET]}
    migration = a_migration(phase="Scheduling", **SIDES, startTime="2026-01-01T00:00:00Z")
    actions = plan(seen(migration, vm=vm, target=a_target(phase="Pending"), kubelet=said, networks=named))
    assert outcome(actions) == ("Scheduling", f"pod {TARGET}: {message}")
    status = next(each.status for each in actions if isinstance(each, WriteStatus))
    assert status["conditions"][0]["reason"] == reason
    assert Emit("Warning", reason, f"pod {TARGET}: {message}") in actions
    assert Requeue(30.0) in actions
    waiting = {**migration, "status": status}
    again = plan(seen(waiting, vm=vm, target=a_target(phase="Pending"), kubelet=said, networks=named))
    assert set(kinds(again)) == {"Requeue"}
    mounted = a_target(phase="Pending")
    mounted["status"]["conditions"].append({"type": "PodReadyToStartContainers", "status": "True"})
    after = plan(seen(waiting, vm=vm, target=mounted))
    assert outcome(after)[1] == f"pod {TARGET} has its volumes and networks; the kubelet is creating its container"
    status = next(each.status for each in after if isinstance(each, WriteStatus))
    assert status["conditions"] == []
    assert set(kinds(plan(seen({**migration, "status": status}, vm=vm, target=mounted)))) == {"Requeue"}


def test_waiting_target_is_checked_with_growing_pauses() -> None:
    target = a_target(phase="Pending", bound_at="2026-01-01T00:00:50Z")
    migration = a_migration(phase="Scheduling", **SIDES, startTime="2026-01-01T00:00:50Z")
    assert plan(seen(migration, target=target))[0] == Requeue(10.0)
    assert plan(seen(migration, target=a_target(phase="Pending", bound_at="2026-01-01T00:01:00Z")))[0] == Requeue(2.0)


def test_unschedulable_kvm_target_reports_the_guests_cpu_needs() -> None:
    target = a_target(phase="Pending", node="")
    target["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    target["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
    vm = a_running_vm()
    migration = a_migration(phase="Scheduling", **SIDES)
    assert outcome(plan(seen(migration, vm=vm, target=target)))[1] == (
        f"pod {TARGET}: 0/1 nodes; the guest uses the CPU features of node node1, so the target node needs all "
        "host-model-cpu.node.kubevirt.io/… and cpu-feature.node.kubevirt.io/… labels of that node"
    )
    vm["spec"]["domain"]["cpu"] = {"model": "EPYC"}
    assert outcome(plan(seen(migration, vm=vm, target=target)))[1] == (
        f"pod {TARGET}: 0/1 nodes; spec.domain.cpu.model: EPYC needs a node with the label cpu-model.node.kubevirt.io/EPYC"
    )
    target["status"]["conditions"][0]["status"] = "True"
    target["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ErrImagePull", "message": "denied"}}
    assert outcome(plan(seen(migration, vm=vm, target=target)))[1] == f"pod {TARGET}: denied"


def test_a_guest_with_a_chosen_cpu_goes_where_that_is() -> None:
    vm = a_running_vm()
    vm["status"] |= {"cpu": {"model": "EPYC", "features": ["ibpb"]}, "domain": {"type": "kvm", "cpuModel": "EPYC"}}
    assert not relies_on_node(a_migration(), vm, a_source_with_kvm())
    create = plan(seen(a_migration(), vm=vm, source=a_source_with_kvm()))[0]
    assert isinstance(create, CreatePod)
    assert set(create.pod["spec"]["nodeSelector"]) == {"cpu-model.node.kubevirt.io/EPYC", "cpu-feature.node.kubevirt.io/ibpb"}
    create = plan(seen(a_migration(), vm=vm, source=a_pod()))[0]
    assert isinstance(create, CreatePod)
    assert "nodeSelector" not in create.pod["spec"]

    target = a_target(phase="Pending", node="")
    target["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] = "1"
    target["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
    told = outcome(plan(seen(a_migration(phase="Scheduling", **SIDES), vm=vm, target=target)))[1]
    assert told.startswith(f"pod {TARGET}: 0/1 nodes; status.cpu.model: EPYC needs a node with the label cpu-model.node.kubevirt.io/EPYC; ")
    assert "the guest uses the CPU features of node" not in told


def test_guest_started_without_chosen_cpu_relies_on_its_nodes() -> None:
    vm = a_running_vm()
    vm["status"] |= {"cpu": {"model": "EPYC"}, "domain": {"type": "kvm"}}
    assert relies_on_node(a_migration(), vm, a_source_with_kvm())
    create = plan(seen(a_migration(), vm=vm, source=a_source_with_kvm(), source_labels=SOURCE_LABELS))[0]
    assert isinstance(create, CreatePod)
    assert create.pod["spec"]["nodeSelector"] == SOURCE_LABELS


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Scheduled", "Stopping", "Stopped", "Failed", "Unknown"])
def test_a_machine_that_does_not_run_cannot_migrate(phase: str) -> None:
    actions = plan(seen(a_migration(), vm=a_vm(phase=phase, attempts=[an_attempt()])))
    assert outcome(actions)[0] == "Failed"
    assert "testvm" in outcome(actions)[1]


@pytest.mark.parametrize("phase", ["Scheduling", "PreparingTarget"])
def test_migration_fails_if_its_machine_was_restarted_meanwhile(phase: str) -> None:
    """The target's node and anti-affinity were chosen for a deleted pod."""
    again = names.launcher_pod_name("testvm", UID, 2)
    migration = a_migration(phase=phase, **SIDES)
    assert outcome(plan(seen(migration, vm=a_running_vm(again), target=a_target()))) == (
        "Failed",
        "virtual machine testvm was restarted after the migration was created",
    )
    same = plan(seen(migration, target=a_target()))
    assert "Failed" not in [each.status["phase"] for each in same if isinstance(each, WriteStatus)]


def test_a_claim_that_two_nodes_cannot_use_is_named() -> None:
    vm = a_running_vm()
    vm["spec"]["domain"]["devices"]["disks"] = [{"type": "PersistentVolumeClaim", "source": {"name": "root"}}]
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    assert outcome(plan(seen(a_migration(), vm=vm, claims={"root": claim}))) == (
        "Failed",
        "PersistentVolumeClaim root is not ReadWriteMany: two nodes cannot mount it at the same time (disk 'disk0')",
    )


def test_a_target_without_a_node_waits_and_says_why() -> None:
    target = a_target(phase="Pending", node="")
    target["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
    actions = plan(seen(a_migration(phase="Scheduling", **SIDES), target=target, now=NOW + timedelta(days=1)))
    phase, message = outcome(actions)
    assert phase == "Scheduling"
    assert "0/1 nodes" in message


def test_a_target_that_runs_is_prepared() -> None:
    actions = plan(seen(a_migration(phase="Scheduling", **SIDES), target=a_target()))
    assert outcome(actions)[0] == "PreparingTarget"


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ({}, ["10.0.0.1"]),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, ["10.0.0.1", "fd00::1"]),
        ({"podIPs": [{"ip": "169.254.169.254"}, {"ip": "fd00::1"}]}, ["fd00::1"]),
        ({"podIPs": [{"ip": "nowhere"}, {}]}, []),
        ({"podIP": None}, []),
    ],
)
def test_target_pod_ips_are_recorded(addresses: dict[str, Any], said: list[str]) -> None:
    target = a_target()
    target["status"] |= addresses
    actions = plan(seen(a_migration(phase="Scheduling", **SIDES), target=trim_pod(target)))
    assert [each.status["targetPodIPs"] for each in actions if isinstance(each, WriteStatus)] == [said]


def test_silent_target_node_fails_the_migration_before_it_starts() -> None:
    stamps = [{"phase": "PreparingTarget", "time": "2026-01-01T00:01:00.000000Z"}]
    migration = a_migration(phase="PreparingTarget", phaseTransitionTimestamps=stamps, targetNode="node2", **SIDES)
    assert plan(seen(migration, target=a_target())) == (Requeue(float(PREPARE_SECONDS)),)
    late = plan(seen(migration, target=a_target(), now=NOW + timedelta(seconds=PREPARE_SECONDS)))
    assert outcome(late)[0] == "Failed"


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "PreparingTarget"])
def test_a_migration_deleted_before_it_began_is_cancelled_here(phase: str) -> None:
    assert outcome(plan(seen(a_migration(phase=phase, deleting=True, **SIDES), target=a_target())))[0] == "Cancelled"


@pytest.mark.parametrize("phase", ["TargetReady", "Running"])
def test_a_migration_deleted_under_way_is_left_to_virt_handler(phase: str) -> None:
    actions = plan(seen(a_migration(phase=phase, deleting=True, **SIDES), target=a_target()))
    assert outcome(actions)[0] == phase


@pytest.mark.parametrize("phase", UNFINISHED)
def test_ended_target_fails_the_migration_in_every_phase(phase: str) -> None:
    for target in (None, a_target(phase="Failed", exit_code=1)):
        assert outcome(plan(seen(a_migration(phase=phase, **SIDES), target=target)))[0] == "Failed"


@pytest.mark.parametrize("phase", UNFINISHED)
def test_deleted_target_fails_the_migration_before_the_move(phase: str) -> None:
    actions = plan(seen(a_migration(phase=phase, **SIDES), target=a_target(deleting=True)))
    if phase in ("TargetReady", "Running"):
        assert actions == ()
    else:
        assert outcome(actions)[0] == "Failed"


def test_machine_on_the_target_counts_as_success() -> None:
    migration = a_migration(phase="Running", targetNode="node2", **SIDES)
    assert outcome(plan(seen(migration, vm=a_running_vm(TARGET), target=a_target())))[0] == "Succeeded"


@pytest.mark.parametrize(
    ("phase", "holder", "loser"),
    [("Succeeded", TARGET, SOURCE), ("Failed", SOURCE, TARGET), ("Cancelled", SOURCE, TARGET), ("Failed", TARGET, SOURCE)],
)
def test_the_pod_without_the_guest_is_deleted_at_the_end(phase: str, holder: str, loser: str) -> None:
    now = NOW + timedelta(seconds=SOURCE_END_SECONDS)
    actions = plan(seen(a_migration(phase=phase, endTime=ENDED, **SIDES), vm=a_running_vm(holder), target=a_target(), now=now))
    assert [each.name for each in actions if isinstance(each, DeletePod)] == [loser]
    assert actions[-1] == RemoveFinalizer(names.MIGRATION_FINALIZER)


def test_stale_machine_after_success_costs_no_pod() -> None:
    now = NOW + timedelta(seconds=SOURCE_END_SECONDS)
    migration = a_migration(phase="Succeeded", endTime=ENDED, **SIDES)
    assert kinds(plan(seen(migration, vm=a_running_vm(SOURCE), target=a_target(), now=now))) == ["Requeue"]


def test_the_source_may_end_by_itself_before_it_is_deleted() -> None:
    migration = a_migration(phase="Succeeded", endTime=ENDED, **SIDES)
    rest: dict[str, Any] = {"vm": a_running_vm(TARGET), "target": a_target()}
    assert plan(seen(migration, **rest)) == (Requeue(float(SOURCE_END_SECONDS)),)
    assert kinds(plan(seen(migration, source=None, **rest))) == ["RemoveFinalizer"]
    assert kinds(plan(seen(migration, source=a_pod(phase="Succeeded", exit_code=0), **rest))) == ["DeletePod", "RemoveFinalizer"]


def a_source_that_left() -> dict[str, Any]:
    pod = a_pod(phase="Succeeded", exit_code=0)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "migrated: the guest continues in another pod"
    return pod


@pytest.mark.parametrize("deleting", [False, True])
def test_source_pods_last_message_releases_the_guest(deleting: bool) -> None:
    migration = a_migration(phase="Running", deleting=deleting, **SIDES)
    observed = seen(migration, source=a_source_that_left(), target=a_target())
    (action,) = plan(observed)
    assert isinstance(action, WriteStatus)
    assert departure.is_released({"status": action.status})
    assert action.status["phase"] == "Running"
    assert not any(isinstance(each, WriteStatus) and each.status["phase"] != "Running" for each in plan(apply(observed, (action,))))


@pytest.mark.parametrize("source", [None, a_pod(phase="Succeeded", exit_code=0), a_pod(phase="Failed", exit_code=137)])
def test_source_ending_without_departure_fails_after_a_while(source: dict[str, Any] | None) -> None:
    observed = seen(a_migration(phase="Running", **SIDES), source=source, target=a_target())
    actions = plan(observed)
    assert kinds(actions) == ["WriteStatus", "Requeue"]
    later = apply(observed, actions)
    assert not departure.is_released(later.migration)
    assert kinds(plan(later)) == ["Requeue"]
    late = dataclasses.replace(later, now=NOW + timedelta(seconds=LAST_WORDS_SECONDS))
    assert outcome(plan(late))[0] == "Failed"
    released = {**later.migration, "status": departure.released(later.migration, departure.BY_HANDLER, "", NOW)}
    assert plan(dataclasses.replace(late, migration=released)) == ()


def test_a_source_that_runs_keeps_its_guest() -> None:
    assert plan(seen(a_migration(phase="Running", **SIDES), target=a_target())) == ()


def test_unrecorded_target_pod_is_deleted_too() -> None:
    actions = plan(seen(a_migration(phase="Cancelled"), target=a_target()))
    assert [each.name for each in actions if isinstance(each, DeletePod)] == [TARGET]


@pytest.mark.parametrize("known", [[], [{"type": "Succeeded", "status": "Unknown", "reason": "Unschedulable", "message": "no node"}]])
@pytest.mark.parametrize("phase", sorted(phases.MIGRATION_FINAL))
def test_end_written_by_virt_handler_gets_its_condition_at_once(phase: str, known: list[dict[str, Any]]) -> None:
    migration = a_migration(phase=phase, conditions=known, message="has reported the result", endTime=ENDED, **SIDES)
    holder = TARGET if phase == "Succeeded" else SOURCE
    observed = seen(migration, vm=a_running_vm(holder), target=a_target())
    first, *rest = plan(observed)
    assert isinstance(first, WriteStatus)
    assert outcome((first,)) == (phase, "has reported the result")
    (found,) = first.status["conditions"]
    assert found | {"lastTransitionTime": ""} == {
        "type": "Succeeded",
        "status": "True" if phase == "Succeeded" else "False",
        "reason": phase,
        "message": "has reported the result",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }
    assert list(plan(apply(observed, (first,)))) == rest


def test_migration_without_machine_says_where_it_looked() -> None:
    phase, message = outcome(plan(seen(a_migration(), vm=None, source=None)))
    assert phase == "Failed"
    assert message == "virtual machine 'testvm' not found in namespace default; create it, then create another Migration"


def test_success_message_does_not_claim_that_a_paused_guest_runs() -> None:
    observed = seen(a_migration(phase="Running", targetNode="node2", **SIDES), vm=a_running_vm(TARGET), target=a_target())
    assert outcome(plan(observed)) == ("Succeeded", "the guest moved to node node2")


def test_target_handler_has_a_moment_to_write_the_end() -> None:
    def of(ended: timedelta | None, uid: str = "migration-uid") -> tuple[Action, ...]:
        vm = a_running_vm(TARGET)
        vm["status"]["migration"] = {
            "uid": uid,
            "phase": "Succeeded",
            "endTime": times.to_rfc3339(NOW + ended) if ended is not None else None,
        }
        return plan(seen(a_migration(phase="Running", targetNode="node2", **SIDES), vm=vm, target=a_target()))

    assert of(timedelta()) == (Requeue(HANDLER_SECONDS),)
    assert of(timedelta(seconds=-HANDLER_SECONDS + 1)) == (Requeue(1),)
    for ended, uid in (
        (timedelta(seconds=-HANDLER_SECONDS), "migration-uid"),
        (timedelta(seconds=HANDLER_SECONDS), "migration-uid"),
        (timedelta(hours=1), "migration-uid"),
        (timedelta(), "another"),
        (None, "migration-uid"),
    ):
        assert outcome(of(ended, uid))[0] == "Succeeded"


LAST = (RemoveFinalizer(names.MIGRATION_FINALIZER),)


@pytest.mark.parametrize(
    ("phase", "actions", "event"),
    [
        ("Succeeded", LAST, Emit("Normal", "Migrated", "migration m moved the guest from node1 to node2")),
        ("Failed", LAST, Emit("Warning", "MigrationFailed", "migration m: the link broke")),
        ("Cancelled", LAST, Emit("Warning", "MigrationCancelled", "migration m: the link broke")),
        ("Succeeded", (Requeue(1.0),), None),
        ("Failed", (), None),
        ("Running", LAST, None),
        ("", LAST, None),
    ],
)
def test_outcome_of_a_migration_is_one_event_of_its_machine(phase: str, actions: tuple[Action, ...], event: Emit | None) -> None:
    migration = a_migration(phase=phase, message="the link broke", **SIDES, targetNode="node2")
    migration["metadata"]["name"] = "m"
    assert outcome_event(migration, a_running_vm(), actions) == event


def test_ended_migration_without_message_is_reported_by_phase() -> None:
    assert outcome_event(a_migration(phase="Failed"), a_running_vm(), LAST) == Emit(
        "Warning", "MigrationFailed", f"migration {name_of(a_migration())}: Failed"
    )


def a_stopped_vm(how: str) -> dict[str, Any]:
    vm = a_running_vm()
    if how == "deleted":
        vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    if how in ("Stop", "Restart"):
        vm["status"]["request"] = {"action": how, "runStrategy": "RerunOnFailure", "attempt": 1 if how == "Stop" else 2}
    if how == "restarted":
        ended = {**an_attempt(), "podName": SOURCE, "stopTime": "2026-01-01T00:00:30Z", "result": "Stopped"}
        vm["status"] |= {"attempt": 2, "attempts": [ended, an_attempt(2)], "podName": an_attempt(2)["podName"]}
    return vm


@pytest.mark.parametrize("how", ["deleted", "Stop", "Restart", "restarted"])
def test_that_a_machine_was_stopped_while_it_moved_is_no_warning(how: str) -> None:
    migration = a_migration(phase="Failed", message="the virtual machine was stopped during the migration", **SIDES)
    event = outcome_event(migration, a_stopped_vm(how), LAST)
    assert event == Emit("Normal", "MigrationFailed", "migration move: the virtual machine was stopped during the migration")
    for phase in ("Scheduling", "PreparingTarget"):
        told = plan(seen(a_migration(phase=phase, **SIDES), vm=a_stopped_vm(how), target=a_target()))
        assert [each.type for each in told if isinstance(each, Emit)] == ["Normal"]
        assert outcome(told)[0] == "Failed"
    assert plan(seen(a_migration(phase="Scheduling", **SIDES), vm=a_running_vm("another"), target=a_target()))[1] == Emit(
        "Warning", "Failed", "virtual machine testvm was restarted after the migration was created"
    )
    crashed = plan(seen(a_migration(phase="Running", **SIDES), vm=a_stopped_vm(how), target=a_target(phase="Failed", exit_code=1)))
    assert crashed[1] == Emit("Warning", "Failed", f"target pod {TARGET} ended: crashed: QEMU (exit code 1)")


@pytest.mark.parametrize("run", [2, 4])
def test_stop_of_an_earlier_run_is_no_excuse_for_a_failure(run: int) -> None:
    """Pod names end in a hash: those of the earlier runs are smaller than the second's and greater than the fourth's."""
    earlier = [{**an_attempt(number), "stopTime": "2026-01-01T00:00:30Z"} for number in range(1, run)]
    source = an_attempt(run)["podName"]
    vm = a_running_vm(source)
    vm["status"] |= {"attempt": run, "attempts": [*earlier, an_attempt(run)]}
    event = outcome_event(a_migration(phase="Failed", **{**SIDES, "sourcePod": source}), vm, LAST)
    assert event == Emit("Warning", "MigrationFailed", "migration move: Failed")


def test_both_pods_go_with_a_machine_that_is_gone() -> None:
    actions = plan(seen(a_migration(phase="Failed", **SIDES), vm=None, target=a_target()))
    assert kinds(actions) == ["DeletePod", "DeletePod", "RemoveFinalizer"]


MACHINES = st.none() | st.builds(
    lambda phase, pod: {**a_running_vm(), "status": {**a_running_vm()["status"], "phase": phase, "podName": pod}},
    st.sampled_from(phases.VM_PHASES),
    st.sampled_from([SOURCE, TARGET, "virt-launcher-testvm-other"]),
)
POD = {"phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]), "deleting": st.booleans()}
OBSERVED = st.builds(
    lambda migration, vm, source, target, hours: seen(migration, vm=vm, source=source, target=target, now=NOW + timedelta(hours=hours)),
    st.builds(
        a_migration,
        phase=st.sampled_from(("", *phases.MIGRATION_PHASES)),
        deleting=st.booleans(),
        **{key: st.just(value) for key, value in SIDES.items()},
    ),
    MACHINES,
    st.none() | st.builds(a_pod, **POD),
    st.none() | st.builds(a_target, **POD),
    st.integers(0, 1),
)


def apply(observed: Observed, actions: tuple[Action, ...]) -> Observed:
    migration = copy.deepcopy(observed.migration)
    sides = {name_of(pod): copy.deepcopy(pod) for pod in (observed.source, observed.target) if pod is not None}
    for action in actions:
        if isinstance(action, CreatePod):
            sides.setdefault(name_of(action.pod), {**action.pod, "status": {"phase": "Pending"}})
        elif isinstance(action, DeletePod):
            assert action.uid == uid_of(sides[action.name])
            if pod_state.is_over(sides[action.name]):
                del sides[action.name]
            else:
                sides[action.name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        elif isinstance(action, WriteStatus):
            migration["status"] = copy.deepcopy(action.status)
        elif isinstance(action, RemoveFinalizer):
            migration["metadata"]["finalizers"].remove(action.finalizer)
    source, target = sides.get(SOURCE), sides.get(TARGET)
    return Observed(migration, observed.vm, source, target, observed.claims, observed.now, observed.settings)


@given(OBSERVED)
def test_a_plan_carried_out_leads_to_rest(observed: Observed) -> None:
    for _ in range(8):
        actions = tuple(each for each in plan(observed) if not isinstance(each, Requeue))
        if not actions:
            return
        observed = apply(observed, actions)
    pytest.fail(f"still planning {kinds(plan(observed))}")


@given(OBSERVED)
def test_every_write_follows_the_table_of_phases(observed: Observed) -> None:
    for action in plan(observed):
        if isinstance(action, WriteStatus):
            before, after = phases.phase_of(observed.migration), action.status["phase"]
            assert after == before or after in phases.MIGRATION_TRANSITIONS[before], (before, after)
            assert not status_validation.validate_migration_status({"status": action.status}, observed.migration)


@given(OBSERVED)
def test_the_pod_that_holds_the_guest_is_never_deleted(observed: Observed) -> None:
    for action in plan(observed):
        if isinstance(action, DeletePod) and observed.vm is not None:
            assert action.name != observed.vm["status"]["podName"]
            assert phases.phase_of(observed.migration) in phases.MIGRATION_FINAL


@given(OBSERVED)
def test_a_plan_depends_on_what_is_seen_alone(observed: Observed) -> None:
    before = copy.deepcopy(observed)
    assert plan(observed) == plan(before)
    assert observed == before
    assert not any(isinstance(each, DeletePod) and is_deleting(observed.source or {}) and each.name == SOURCE for each in plan(observed))

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition, name_of
from controller.reconcilers.actions import Action, Emit, Requeue, WriteStatus
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.pods import mounted_sources
from controller.reconcilers.pods.mounted_sources import fault, of, trim_event
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt
from tests.unit.controller.reconcilers.launcher_pods.test_launcher_pod import FILESYSTEMS, FIRST_BOOT, IMPORTED, NETWORK_DISKS

BOUND = datetime(2026, 1, 1, tzinfo=UTC)
"""The time when ``a_pod`` got its node."""
SPEC = {key: value for key, value in FIRST_BOOT["spec"].items() if key in ("domain", "accessCredentials")}
USER = "spec.domain.devices.disks[0].source.userDataSecretRef"
NET = "spec.domain.devices.disks[0].source.networkDataSecretRef"
KEYS = "spec.accessCredentials[0].sshPublicKey.source.secret.secretName"
ENDING = f"; {mounted_sources.LOOKS_AGAIN.format(what='virtual machine starts')}"


def an_event(volume: str, words: str, last: str = "2026-01-01T00:10:00Z") -> dict[str, Any]:
    return trim_event({"message": f'MountVolume.SetUp failed for volume "{volume}" : {words}', "lastTimestamp": last})


@pytest.mark.parametrize("vm", [FIRST_BOOT, IMPORTED], ids=["first-boot", "imported"])
def test_mounted_sources_are_found_by_their_volume(vm: dict[str, Any]) -> None:
    volumes = {each["name"]: each for each in launcher_pod(vm, 1, {}, Settings("x"), Placement())["spec"]["volumes"]}
    for source in of(vm):
        mounted = [next(iter(each.items())) for each in volumes[source.volume]["projected"]["sources"]]
        assert (source.kind.lower(), source.name) in [(kind.lower(), each["name"]) for kind, each in mounted]
    projected = [source for each in volumes.values() if "projected" in each for source in each["projected"]["sources"]]
    assert len(of(vm)) == sum("downwardAPI" not in each for each in projected)


def test_missing_root_ca_is_reported_for_a_token_disk() -> None:
    vm = a_vm(domain={"devices": {"disks": [{"type": "ServiceAccount", "source": {"name": "robot"}}]}})
    reason, message = fault(vm, [an_event("disk-0", 'configmap "kube-root-ca.crt" not found')]) or ("", "")
    assert (reason, message) == (
        "ConfigMapNotFound",
        f"spec.domain.devices.disks[0].source: ConfigMap kube-root-ca.crt not found{ENDING}",
    )


@pytest.mark.parametrize(
    ("volume", "words", "reason", "said"),
    [
        ("disk-0", 'secret "user" not found', "SecretNotFound", f"{USER}: Secret user not found"),
        ("disk-0", 'secrets "net" not found', "SecretNotFound", f"{NET}: Secret net not found"),
        (
            "disk-0",
            '[secret "user" not found, secret "net" not found]',
            "SecretNotFound",
            f"{USER}: Secret user not found; {NET}: Secret net not found",
        ),
        ("disk-0", "references non-existent secret key: eth0.yaml", "SecretNotFound", f"{NET}: Secret net has no key eth0.yaml"),
        ("disk-1", 'secret "unattend" not found', "SecretNotFound", "spec.domain.devices.disks[1].source.name: Secret unattend not found"),
        (
            "disk-2",
            'configmap "settings" not found',
            "ConfigMapNotFound",
            "spec.domain.devices.disks[2].source.name: ConfigMap settings not found",
        ),
        ("access-credential-0", 'secret "keys" not found', "SecretNotFound", f"{KEYS}: Secret keys not found"),
    ],
)
def test_missing_sources_are_reported_with_their_field(volume: str, words: str, reason: str, said: str) -> None:
    assert fault(FIRST_BOOT, [an_event(volume, words)]) == (reason, said + ENDING)


@pytest.mark.parametrize(
    "message",
    [
        "",
        'MountVolume.SetUp failed for volume "disk-0" : object "default"/"user" not registered',
        'MountVolume.SetUp failed for volume "disk-0" : failed to sync secret cache: timed out waiting for the condition',
        'MountVolume.SetUp failed for volume "disk-0" : secret "of-somebody-else" not found',
        'MountVolume.SetUp failed for volume "disk-1" : secret "user" not found',
        'MountVolume.SetUp failed for volume "disk-0" : secret "unattend" not found',
        'MountVolume.SetUp failed for volume "disk-0" : references non-existent secret key: zzz',
        'MountVolume.SetUp failed for volume "disk-9" : secret "user" not found',
        'Unable to attach or mount volumes: unmounted volumes=[disk-0]: secret "user" not found',
    ],
)
def test_nothing_else_is_taken_for_a_missing_secret(message: str) -> None:
    assert fault(FIRST_BOOT, [trim_event({"message": message})]) is None


def test_missing_file_system_sources_are_reported_by_field() -> None:
    path = "spec.domain.devices.filesystems"
    for volume, words, said in (
        ("filesystem-2", 'configmap "settings" not found', f"{path}[2].source.name: ConfigMap settings not found"),
        ("filesystem-3", 'secret "passwords" not found', f"{path}[3].source.name: Secret passwords not found"),
    ):
        found = fault(FILESYSTEMS, [an_event(volume, words)])
        assert found is not None
        assert found[1] == said + ENDING
    assert len(of(FILESYSTEMS)) == 2


def test_a_login_that_a_secret_lacks_is_told_with_its_key() -> None:
    volume, path = "disk-1", "spec.domain.devices.disks[1].source.secretRef"
    told = {
        'secret "chap" not found': f"{path}: Secret chap not found",
        "references non-existent secret key: node.session.auth.password": f"{path}: Secret chap has no key node.session.auth.password",
    }
    for words, said in told.items():
        assert fault(NETWORK_DISKS, [an_event(volume, words)]) == ("SecretNotFound", said + ENDING)
    (mounted,) = (
        each for each in launcher_pod(NETWORK_DISKS, 1, {}, Settings("x"), Placement())["spec"]["volumes"] if each["name"] == volume
    )
    assert mounted["projected"]["sources"][0]["secret"]["name"] == "chap"


def test_certificates_of_all_disks_are_one_volume_naming_its_key() -> None:
    disk = next(each for each in NETWORK_DISKS["spec"]["domain"]["devices"]["disks"] if each["name"] == "data")
    vm = a_vm(domain={"devices": {"disks": [{**disk, "name": f"d{each}"} for each in range(3)]}})
    assert {each.volume for each in of(vm)} == {"nbd-certificates"}
    spec = launcher_pod(vm, 1, {}, Settings("x"), Placement())["spec"]
    mounts = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "nbd-certificates"]
    assert [each["name"] for each in spec["volumes"]].count("nbd-certificates") == len(mounts) == 1
    found = fault(vm, [an_event("nbd-certificates", "references non-existent secret key: ca.crt")])
    assert found is not None
    assert "spec.domain.devices.disks[0].source.tlsSecretRef: Secret nbd-certificates has no key ca.crt" in found[1]


def test_fixed_mount_fault_is_not_reported_with_a_current_one() -> None:
    old, new = an_event("disk-0", 'secret "user" not found', "2026-01-01T00:00:00Z"), an_event("disk-2", 'configmap "settings" not found')
    found = fault(FIRST_BOOT, [old, new])
    assert found is not None
    assert (found[0], "user" in found[1]) == ("ConfigMapNotFound", False)
    for last in ("2026-01-01T00:05:00Z", "2026-01-01T00:04:00Z"):
        both = fault(FIRST_BOOT, [{**old, "last": last}, new])
        assert both is not None
        assert "user" in both[1]


@pytest.mark.parametrize("seconds", [0, 60])
def test_of_several_looks_at_one_volume_the_last_one_counts(seconds: int) -> None:
    """The Secret came without its key; then the key came, and another Secret went."""
    missing, keyless = 'secret "net" not found', "references non-existent secret key: eth0.yaml"
    for first, second, said in ((missing, keyless, "net has no key eth0.yaml"), (keyless, missing, "net not found")):
        events = [an_event("disk-0", first, "2026-01-01T00:00:00Z"), an_event("disk-0", second, f"2026-01-01T00:{seconds // 60:02}:00Z")]
        other = an_event("disk-2", 'configmap "settings" not found', "2026-01-01T00:00:00Z")
        found = fault(FIRST_BOOT, [*events, other])
        assert found is not None
        assert sorted(found[1].removesuffix(ENDING).split("; ")) == [
            f"{NET}: Secret {said}",
            "spec.domain.devices.disks[2].source.name: ConfigMap settings not found",
        ]


def test_events_of_every_api_are_dated_and_strange_ones_harmless() -> None:
    assert trim_event({"series": {"lastObservedTime": "a"}, "eventTime": "b"})["last"] == "a"
    assert trim_event({"lastTimestamp": None, "eventTime": "b"})["last"] == "b"
    assert trim_event({}) == {"message": "", "last": ""}
    assert len(trim_event({"message": "x" * 100000})["message"]) == 500
    assert fault(FIRST_BOOT, [{**an_event("disk-0", 'secret "user" not found'), "last": "yesterday"}]) is not None


@pytest.mark.parametrize(("seconds", "counts"), [(-3600, True), (60, True), (61, False)])
def test_events_of_the_future_do_not_count(seconds: int, *, counts: bool) -> None:
    event = an_event("disk-0", "", times.to_rfc3339(BOUND + timedelta(seconds=seconds)))
    assert mounted_sources.is_of_now(event, BOUND) is counts


def pending(*, conditions: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()], **SPEC)
    vm["status"]["conditions"] = conditions or []
    return vm


def planned(vm: dict[str, Any], pod: dict[str, Any], after: float, *events: dict[str, Any]) -> tuple[Action, ...]:
    seen = Observed(vm=vm, pods=(pod,), claims={}, now=BOUND + timedelta(seconds=after), settings=Settings("x"), mount_events=events)
    return plan(seen)


def written(actions: tuple[Action, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(each.status for each in actions if isinstance(each, WriteStatus))["conditions"]
    return found


def test_a_pod_that_waits_is_looked_at_more_and_more_seldom() -> None:
    pod = a_pod(phase="Pending")
    waits = {after: planned(pending(), pod, after) for after in (-3600, 0, 5, 20, 45)}
    assert waits[-3600] == (Requeue(60.0), Requeue(2.0))
    assert [waits[after][-1] for after in (0, 5, 20, 45)] == [Requeue(2.0), Requeue(5.0), Requeue(20.0), Requeue(30.0)]
    assert [mounted_sources.is_to_read(pending(), pod, BOUND + timedelta(seconds=after)) for after in (-1, 0, 1, 1.5)] == [
        True,
        False,
        False,
        True,
    ]
    late = BOUND + timedelta(seconds=60)
    assert mounted_sources.requeue_seconds(pending(), pod, late) == 30.0
    assert mounted_sources.requeue_seconds(pending(), a_pod(), late) is None
    assert mounted_sources.requeue_seconds(a_vm(), pod, late) is None
    assert not mounted_sources.is_to_read(a_vm(), pod, late)
    assert not mounted_sources.is_to_read(pending(), a_pod(), late)
    assert not mounted_sources.is_to_read(pending(), a_pod(phase="Pending", node=""), late)


def test_missing_secret_is_reported_once_and_then_cleared() -> None:
    pod, event = a_pod(phase="Pending"), an_event("disk-0", 'secret "user" not found')
    told = planned(pending(), pod, 3, event)
    message = f"{USER}: Secret user not found{ENDING}"
    conditions = written(told)
    disks, ready = condition(conditions, "DisksReady"), condition(conditions, "Ready")
    assert disks is not None
    assert ready is not None
    assert (disks["status"], disks["reason"], disks["message"]) == ("False", "SecretNotFound", message)
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "DisksNotReady", message)
    assert told[1:] == (Emit("Warning", "SecretNotFound", message), Requeue(3.0))

    waiting = pending(conditions=conditions)
    assert planned(waiting, pod, 90, event) == (Requeue(30.0),)
    handed = condition(written(planned(waiting, a_pod(), 91)), "DisksReady")
    assert handed is not None
    assert handed["status"] == "True"


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"])
def test_mounted_secret_is_not_missing_despite_other_obstacles(reason: str) -> None:
    pod, event = a_pod(phase="Pending"), an_event("disk-0", 'secret "user" not found')
    waiting = pending(conditions=written(planned(pending(), pod, 3, event)))
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": "no such thing"}}
    assert not mounted_sources.is_to_read(waiting, pod, BOUND + timedelta(seconds=60))
    assert mounted_sources.is_to_read(waiting, a_pod(phase="Pending"), BOUND + timedelta(seconds=60))
    assert [each["type"] for each in written(planned(pending(), pod, 60))] == ["Ready"], "nothing was missing that could be found"
    conditions = written(planned(waiting, pod, 60, event))
    assert {each["type"]: (each["status"], each["reason"]) for each in conditions} == {
        "DisksReady": ("True", "NoClaims"),
        "Ready": ("False", reason),
    }
    assert planned(pending(conditions=conditions), pod, 90, event) == ()


def test_mounted_secret_is_not_missing_during_the_image_pull() -> None:
    pod, event = a_pod(phase="Pending"), an_event("disk-0", 'secret "user" not found')
    waiting = pending(conditions=written(planned(pending(), pod, 3, event)))
    pod["status"]["conditions"].append({"type": "PodReadyToStartContainers", "status": "True"})
    told = planned(waiting, pod, 20, event)
    conditions = written(told)
    assert {each["type"]: (each["status"], each["reason"]) for each in conditions} == {
        "DisksReady": ("True", "NoClaims"),
        "Ready": ("False", "PodNotRunning"),
    }
    assert told[1:] == (Requeue(60.0),)
    assert planned(pending(conditions=conditions), pod, 30, event) == (Requeue(30.0),)
    late = condition(written(planned(pending(conditions=conditions), pod, 61, event)), "Ready")
    assert late is not None
    assert late["reason"] == "ContainerCreating"


def test_pod_without_node_or_waiting_for_volume_clears_no_fault() -> None:
    event = an_event("disk-0", 'secret "user" not found')
    waiting = pending(conditions=written(planned(pending(), a_pod(phase="Pending"), 3, event)))
    refused = a_pod(phase="Pending", node="")
    refused["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]
    for pod in (refused, a_pod(phase="Pending")):
        pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
        for action in planned(waiting, pod, 90, event):
            if isinstance(action, WriteStatus):
                lacking = condition(action.status["conditions"], "DisksReady")
                assert lacking is not None
                assert lacking["reason"] == "SecretNotFound"


def test_stop_while_waiting_clears_the_disks_condition() -> None:
    event = an_event("disk-0", 'secret "user" not found')
    vm = pending(conditions=written(planned(pending(), a_pod(phase="Pending"), 3, event)))
    vm["spec"]["runStrategy"] = "Halted"
    ended = planned(vm, a_pod(phase="Failed"), 60)
    assert condition(written(ended), "DisksReady") is None


def test_slow_pod_without_kubelet_events_is_reported_generally() -> None:
    pod = a_pod(phase="Pending")
    ready = condition(written(planned(pending(), pod, 61)), "Ready")
    assert ready is not None
    assert (ready["reason"], name_of(pod) in ready["message"]) == ("ContainerCreating", True)


def test_missing_import_sources_are_reported_by_field() -> None:
    http = "spec.domain.devices.disks[2].source.import.http"
    found = fault(IMPORTED, [an_event("disk-2-secret", 'secret "login" not found')])
    assert found == ("SecretNotFound", f"{http}.secretRef.name: Secret login not found{ENDING}")
    found = fault(IMPORTED, [an_event("disk-2-authorities", "references non-existent config key: k")])
    assert found == ("ConfigMapNotFound", f"{http}.caConfigMapRef: ConfigMap ca has no key k{ENDING}")

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tests.testbed import build, images, kubectl, layout, progress

NAME = "kubevirt"
NAMESPACE = "kubevirt"
_CHART = layout.REPOSITORY / "charts" / "kubevirt"
_ALWAYS = ("macvtap.enabled=true", "managedSave.nodeDisk.enabled=true", "managedSave.nodeDisk.keepFreePercent=2")
"""This machine's disk may be nearly full."""
_WORKLOADS = {"virt-api": "deployment", "virt-controller": "deployment", "virt-handler": "daemonset"}


def install(*settings: str, timeout_seconds: int = 480) -> None:
    """Install or upgrade the chart with optional parts, and wait until it is ready; ``settings``: Helm's ``--set`` arguments."""
    flags = [word for setting in (*_ALWAYS, *settings) for word in ("--set", setting)]
    if not settings and is_installed():  # the installation checked these objects with the cluster's OpenAPI, half of Helm's work
        flags.append("--disable-openapi-validation")
    command = ["upgrade", "--install", NAME, str(_CHART), "--namespace", NAMESPACE, "--create-namespace", *flags]
    try:
        _helm(*command, "--wait", "--timeout", f"{timeout_seconds}s", timeout_seconds=timeout_seconds + 30)
    except progress.StepFailed as error:
        raise progress.StepFailed(f"{error}\n{_state()}") from error


def _state() -> str:
    try:
        pods = kubectl.output("get", "pods", "--namespace", NAMESPACE, "--output=wide")
        events = kubectl.output("get", "events", "--namespace", NAMESPACE, "--sort-by=.lastTimestamp", "--field-selector=type=Warning")
    except progress.StepFailed as error:
        return str(error)
    return f"{pods}\n{chr(10).join(events.splitlines()[-12:])}"


def is_installed() -> bool:
    releases = progress.output_of(
        [build.program("helm"), "list", "--namespace", NAMESPACE, "--all", "--output=json"], environment=_environment()
    )
    return any(release["name"] == NAME for release in json.loads(releases))


def install_current() -> None:
    """Install or upgrade the chart, and restart pods with earlier images of the same tags."""
    install()
    if kubectl.is_own_cluster() and (names := outdated()):
        progress.say(f"  … restarting {', '.join(names)}")
        restart(names)


def outdated() -> list[str]:
    """Return workloads with pods older than their image, also if an earlier run stopped between import and restart."""
    found = kubectl.get("pods", "--namespace", NAMESPACE)["items"]
    return outdated_of(found, {node.name: images.present_on(node) for node in layout.NODES} if found else {})


def outdated_of(pods: Iterable[Mapping[str, Any]], present: Mapping[str, Mapping[str, str]]) -> list[str]:
    """``present``: digests by node and image. etcd stays: its image holds released binaries."""
    found = {
        pod["metadata"].get("labels", {}).get("kubevirt.io")
        for pod in pods
        if _is_outdated(pod, present.get(pod["spec"].get("nodeName"), {}))
    }
    return [name for name in _WORKLOADS if name in found]


def _is_outdated(pod: Mapping[str, Any], present: Mapping[str, str]) -> bool:
    tags = {each["name"]: each["image"] for key in ("initContainers", "containers") for each in pod["spec"].get(key, ())}
    started = [each for key in ("initContainerStatuses", "containerStatuses") for each in pod["status"].get(key, ()) if each["imageID"]]
    return "deletionTimestamp" not in pod["metadata"] and any(
        tags[each["name"]] in present and present.get(each["imageID"]) != present[tags[each["name"]]] for each in started
    )


def restart(names: Iterable[str]) -> None:
    """Roll out these workloads again, where installed, and wait until the pods are ready."""
    wanted = [f"{_WORKLOADS[name]}/{name}" for name in names if name in _WORKLOADS]
    known = [
        each for each in wanted if kubectl.output("get", each, "--namespace", NAMESPACE, "--ignore-not-found", "--output=name").strip()
    ]
    if known:
        kubectl.run("rollout", "restart", *known, "--namespace", NAMESPACE)
    for each in known:
        kubectl.run("rollout", "status", each, "--namespace", NAMESPACE, "--timeout=300s", timeout_seconds=310)


def uninstall() -> None:
    if is_installed():
        _helm("uninstall", NAME, "--namespace", NAMESPACE, "--wait", "--timeout", "180s", timeout_seconds=240)
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")


def _environment() -> dict[str, str]:
    return {**kubectl.environment(), "HELM_CACHE_HOME": os.fspath(layout.cache() / "helm-cache")}


def _helm(*arguments: str, timeout_seconds: float) -> None:
    """Run Helm alone: concurrent runs fail."""
    program = build.program("helm")
    with (layout.cache() / ".helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        progress.run([program, *arguments], environment=_environment(), timeout_seconds=timeout_seconds)

import fcntl
import json
import os
from collections.abc import Iterable

from tests.testbed import build, kubectl, layout, progress

NAME = "kubevirt"
NAMESPACE = "kubevirt"
_CHART = layout.REPOSITORY / "charts" / "kubevirt"
_ALWAYS = ("macvtap.enabled=true", "managedSave.nodeDisk.enabled=true", "managedSave.nodeDisk.keepFreePercent=2")
"""This machine's disk may be nearly full."""
_WORKLOADS = {"virt-api": "deployment", "virt-controller": "deployment", "virt-handler": "daemonset"}


def install(*settings: str, timeout_seconds: int = 480) -> None:
    """Install or upgrade the chart with optional parts, and wait until every part is ready; ``settings`` are Helm's ``--set`` arguments."""
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


def restart(names: Iterable[str]) -> None:
    """Roll out these images again, where installed, because their tags have new contents; wait until the pods are ready.

    etcd stays: its image holds released binaries.
    """
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
    """Run Helm once no other run of it is active, because concurrent ones fail."""
    program = build.program("helm")
    with (layout.cache() / ".helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        progress.run([program, *arguments], environment=_environment(), timeout_seconds=timeout_seconds)

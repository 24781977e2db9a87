"""The cluster of all cluster tests, with our chart.

Without ``KUBECONFIG`` it is this machine's test cluster, with images of the current source. With it, the user manages images, and the chart
is only upgraded.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import name_of
from apiserver.apis.virt.places import names
from tests.cluster import aftermath, turns
from tests.cluster.api import Api
from tests.cluster.kube import Kubectl
from tests.testbed import addons, build, cluster, layout, networks, release
from tests.testbed import kubectl as testbed_kubectl

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}

_HERE = Path(__file__).parent
_TURN = turns.Turn(turns.LOCK)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout's clock starts
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    if not item.path.is_relative_to(_HERE):
        return (yield)
    with _TURN.during(item.path, nextitem.path if nextitem else None):
        return (yield)


def pytest_run_alone(item: pytest.Item, turn: turns.Turn = _TURN) -> AbstractContextManager[object]:
    return turn.alone(item.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    within = getattr(item, "funcargs", {}).get("kubectl")
    if report.failed and isinstance(within, Kubectl):
        report.sections.append((f"namespace {within.namespace}", aftermath.seen(within, since=call.start)))
    return report


@pytest.fixture(scope="session")
def bare_kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Return ``KUBECONFIG``'s path, or start our cluster and return its kubeconfig; our chart may be absent."""
    if not testbed_kubectl.is_own_cluster():
        return Path(os.environ["KUBECONFIG"])
    with _shown(request.config):
        cluster.up()
        cluster.load_busybox()
    return layout.kubeconfig()


def _shown(config: pytest.Config) -> AbstractContextManager[object]:
    """Let the steps of a start be seen, which takes minutes; several processes would write over each other."""
    capturing = config.pluginmanager.get_plugin("capturemanager")
    return contextlib.nullcontext() if capturing is None or hasattr(config, "workerinput") else capturing.global_and_fixture_disabled()


@pytest.fixture(scope="session")
def kubeconfig(bare_kubeconfig: Path, testrun_uid: str) -> Path:
    installed = layout.cache() / ".tests-installed"  # by which run: one of its processes installs for all
    with turns.one_at_a_time(layout.cache() / ".tests-install.lock"):
        if not installed.exists() or installed.read_text() != testrun_uid:
            if testbed_kubectl.is_own_cluster():
                cluster.load_images()
            release.install_current()
            installed.write_text(testrun_uid)
    return bare_kubeconfig


@pytest.fixture(scope="session")
def testguest(bare_kubeconfig: Path) -> None:
    if testbed_kubectl.is_own_cluster():
        cluster.load_images(["testguest"])


@pytest.fixture(scope="session")
def debian(bare_kubeconfig: Path) -> None:
    if testbed_kubectl.is_own_cluster():
        cluster.load_images(["debian"])


@pytest.fixture(scope="session")
def further_networks(bare_kubeconfig: Path) -> None:
    if testbed_kubectl.is_own_cluster():
        with turns.one_at_a_time(layout.cache() / ".tests-networks.lock"):
            networks.install()


@pytest.fixture(scope="session")
def _binary() -> str:
    return str(build.program("kubernetes", "kubectl"))


@pytest.fixture(scope="module")
def bare_kubectl(bare_kubeconfig: Path, _binary: str, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """Yield a Kubectl for a new namespace of the module, with Pod Security ``restricted``; our chart may be absent."""
    yield from _namespace(Kubectl(bare_kubeconfig, "default", _binary), request.module.__name__.rpartition(".")[2])


@pytest.fixture(scope="module")
def kubectl(kubeconfig: Path, _binary: str, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    yield from _namespace(Kubectl(kubeconfig, "default", _binary), request.module.__name__.rpartition(".")[2])


@pytest.fixture(scope="session")
def system(kubeconfig: Path, _binary: str) -> Kubectl:
    return Kubectl(kubeconfig, release.NAMESPACE, _binary)


@pytest.fixture(scope="module")
def make_namespace(kubectl: Kubectl) -> Iterator[Callable[[str], Kubectl]]:
    made: list[Iterator[Kubectl]] = []

    def make(name: str) -> Kubectl:
        made.append(_namespace(kubectl, name))
        return next(made[-1])

    yield make
    for each in made:
        next(each, None)


def _namespace(kubectl: Kubectl, name: str) -> Iterator[Kubectl]:
    unique = f"{name.replace('_', '-').removeprefix('test-')}-{secrets.token_hex(3)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique, "labels": RESTRICTED}}
    kubectl.api.create(manifest)
    made = kubectl.within(unique)
    try:
        # Without it, kube-apiserver refuses pods after about 1 s.
        made.api.until("serviceaccounts", "default", lambda _: True, timeout=60, what="the default service account")
        yield made
    finally:
        _end(made.api)
        if testbed_kubectl.is_own_cluster():
            with turns.one_at_a_time(layout.cache() / ".tests-volumes.lock"):
                addons.recycle_shared_volumes()


def _end(api: Api) -> None:
    """Delete a namespace's objects, with 1 s of grace, and wait for their end; then begin to delete the namespace, which is slow."""
    if api.find("apiservices", f"{names.VERSION}.{names.GROUP}") is not None:
        with contextlib.suppress(errors.NotFound):  # an earlier version has no sets
            api.delete_all("virtualmachinereplicasets", timeout=60)
        for machine in api.list("virtualmachines"):
            with contextlib.suppress(errors.NotFound):  # it may be gone
                api.patch("virtualmachines", name_of(machine), {"spec": {"terminationGracePeriodSeconds": 0}})
        api.delete_all("migrations", "virtualmachines", timeout=150)
    api.delete_all("replicasets", timeout=60)
    api.delete_all("pods", "persistentvolumeclaims", grace_period=1, timeout=150)
    with contextlib.suppress(errors.NotFound):
        api.delete("namespaces", api.namespace)

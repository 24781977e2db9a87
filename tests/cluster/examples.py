from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.kube import Kubectl
from tests.testbed import build, layout


@dataclass(frozen=True)
class Plugin:
    directory: Path
    files: str
    names: str
    use: str
    removal: str

    @classmethod
    def of(cls, directory: Path) -> Plugin:
        found = re.findall(r"^```sh\n(.*?)^```", (directory / "README.md").read_text(), re.DOTALL | re.MULTILINE)
        return cls(directory, *found)

    @property
    def named(self) -> str:
        return _only(r"--set \S+", self.names)

    @property
    def unnamed(self) -> str:
        return _only(r"--set-json \S+", self.removal)

    def helm_is_that_of(self, other: Plugin) -> bool:
        """Return whether both READMEs' helm commands are equal except --set and --set-json, so one upgrade does both."""
        return (self.names.replace(self.named, ""), _helm(self.removal).replace(self.unnamed, "")) == (
            other.names.replace(other.named, ""),
            _helm(other.removal).replace(other.unnamed, ""),
        )

    def named_with(self, *flags: str) -> str:
        return self.names.replace(self.named, " ".join((self.named, *flags)))

    def unnamed_with(self, *flags: str) -> str:
        return _helm(self.removal).replace(self.unnamed, " ".join((self.unnamed, *flags)))

    def deletions(self) -> tuple[str, str]:
        before, after = self.removal.replace(" delete ", " delete --ignore-not-found ").split(_helm(self.removal))
        return before, after


def _helm(block: str) -> str:
    return _only(r"^helm .*$", block)


def _only(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text, re.MULTILINE)
    return str(found)


def shell(kubectl: Kubectl, directory: Path) -> dict[str, str]:
    kubeconfig = directory / "config"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    path = f"{Path(kubectl.binary).parent}:{build.program('helm').parent}:{os.environ['PATH']}"
    given = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path, "HELM_CACHE_HOME": str(layout.cache() / "helm-cache")}
    subprocess.run(["kubectl", "config", "set-context", "--current", f"--namespace={kubectl.namespace}"], env=given, check=True)
    return given


def follow(block: str, directory: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(["sh", "-ec", block], cwd=directory, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"

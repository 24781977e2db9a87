"""The unmodified sample-apiserver and ours, with equal flags where both have them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.ports import free_port
from tests.reference_server import build, programs
from tests.reference_server.certificates import ADMIN, HOST
from tests.reference_server.environment import GROUP, Environment
from tests.reference_server.programs import Program
from tests.testbed import layout

REFERENCE, OURS, VMS = "reference", "ours", "vms"
_NO_CLUSTER: Final = (
    "--authentication-skip-lookup=true",
    "--enable-priority-and-fairness=false",
    "--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,"
    "MutatingAdmissionPolicy,BanFlunder",
)


@dataclass(frozen=True)
class Variant:
    name: str
    kind: str
    """``reference``, ``ours`` (flunders) or ``vms`` (virt-api itself)."""
    environment: tuple[tuple[str, str], ...] = ()
    group: str = GROUP


@dataclass(frozen=True)
class Setting:
    flags: tuple[str, ...] = ()


ORDINARY: Final = Setting()
VARIED: Final = Setting(("--authorization-webhook-cache-authorized-ttl=1h",))
REFERENCE_DEFAULT: Final = Variant("reference", REFERENCE)
REFERENCE_TUNED: Final = Variant("reference400", REFERENCE, (("GOGC", "400"),))
OURS_FLUNDERS: Final = Variant("ours", OURS)
OURS_MACHINES: Final = Variant("vms", VMS, group="kubevirt.io")


@dataclass
class Server:
    """A compared server; its port stays the same over restarts."""

    variant: Variant
    here: Environment
    cpus: frozenset[int] = frozenset()
    port: int = field(default_factory=free_port)
    tree: Path = layout.REPOSITORY
    """Our sources, possibly of another revision."""
    program: Program | None = None
    python: str = sys.executable
    setting: Setting = ORDINARY

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.program is not None
        return self.program.pid

    def kubeconfig(self, user: str) -> Path:
        return self.here.certificates.kubeconfig(user, self.url, f"{self.variant.name}-{user}")

    def start(self) -> float:
        command = [*self._program(), *self.flags()]
        environment = {"PYTHONUNBUFFERED": "1", **dict(self.variant.environment)}
        self.program = programs.start(
            self.variant.name, command, self.here.directory, cpus=self.cpus, environment=environment, working_directory=self.tree
        )
        return programs.wait_until_ready(self.program, self.port, self.here.certificates, ADMIN)

    def end(self) -> None:
        if self.program is not None:
            self.program.end()
            self.program = None

    def use(self, setting: Setting) -> bool:
        if setting == self.setting:
            return False
        self.end()
        self.setting = setting
        self.start()
        return True

    def flags(self) -> list[str]:
        return [*self._common(), *(self._reference() if self.variant.kind == REFERENCE else self._python()), *self.setting.flags]

    def _program(self) -> list[str]:
        if self.variant.kind == REFERENCE:
            return [str(build.SAMPLE_APISERVER.binary())]
        if self.variant.kind == VMS:
            return [self.python, "-m", "apiserver.server"]
        return [self.python, "-m", "tests.reference_server.serve", f"--api-group={self.variant.group}"]

    def _common(self) -> list[str]:
        made = self.here.certificates
        return [
            f"--bind-address={HOST}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={made.certificate('server')}",
            f"--tls-private-key-file={made.key('server')}",
            f"--client-ca-file={made.authority}",
            f"--etcd-servers={self.here.etcd_url}",
            f"--etcd-prefix=/registry/{self.variant.name}",
        ]

    def _reference(self) -> list[str]:
        kubeconfig = self.here.kubeconfig()
        delegation = [f"--{use}kubeconfig={kubeconfig}" for use in ("", "authentication-", "authorization-")]
        more = () if self.here.kubernetes else _NO_CLUSTER
        return [*delegation, *more]

    def _python(self) -> list[str]:
        cluster = [f"--kubeconfig={self.here.kubeconfig()}"]
        if not self.here.kubernetes:
            cluster = ["--authentication-skip-lookup", "--authorization-mode=AlwaysAllow"]
        return [*cluster, "--shutdown-delay-duration=0s", "--log-level=warning"]

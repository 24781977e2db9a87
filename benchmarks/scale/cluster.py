"""The control plane: every program a process of this machine, on loopback."""

from __future__ import annotations

import base64
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.scale import chart
from benchmarks.scale.chart import LEASES, NAMESPACE
from benchmarks.scale.handlers import HOLDS, Node, Settings
from certs.files import write_file
from tests.fakes.etcd_server import EtcdServer
from tests.ports import free_port
from tests.reference_server import programs
from tests.reference_server.certificates import ADMIN, HOST
from tests.reference_server.environment import Environment, environment
from tests.reference_server.programs import Program, ProgramFailed
from tests.testbed import build

READY_SECONDS: Final = 120.0
CONNECTIONS: Final = 16_384
"""At virt-api: kube-apiserver has three for each node. The default lasts for 1,300 nodes."""
GRACE: Final = 5
"""Renewals until kube-controller-manager calls a node unreachable: its default, divided by the kubelet's ten seconds."""
_CONTROLLERS: Final = "node-lifecycle-controller,pod-garbage-collector-controller,taint-eviction-controller,garbage-collector-controller"
_KUBELETS: Final = Path(__file__).with_name("kubelets.yaml")


@dataclass
class Cluster:
    """A cluster of simulated nodes: Kubernetes' etcd and kube-apiserver (``here``), and its other programs by name."""

    here: Environment
    ours: EtcdServer
    python: str
    renew: int
    """Seconds between two renewals of a node's Leases."""
    api_port: int = field(default_factory=free_port)
    webhook_port: int = field(default_factory=free_port)
    programs: dict[str, Program] = field(default_factory=dict)
    restarts: int = 0
    """Unwanted restarts of virt-controller."""

    @property
    def directory(self) -> Path:
        """Directory of logs and data."""
        return self.here.directory

    def kubeconfig(self) -> Path:
        """Return the path of the administrator's kubeconfig."""
        return self.here.kubeconfig(ADMIN)

    def start(self, name: str, arguments: Sequence[str | Path]) -> Program:
        """Start a program, known by this name from now on."""
        program = programs.start(name, arguments, self.directory, environment={"POD_NAMESPACE": NAMESPACE})
        self.programs[name] = program
        return program

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a program by a signal, and forget it."""
        self.programs.pop(name).end(number)

    def end_all(self) -> None:
        """End all programs, the newest first."""
        for name in reversed(list(self.programs)):
            self.programs[name].process.send_signal(signal.SIGCONT)  # a stopped one does not end
            self.end(name, signal.SIGKILL if name.startswith("handlers") else signal.SIGTERM)

    def token(self, account: str, pod: dict[str, Any] | None = None) -> str:
        """Return a token of a service account, bound to ``pod`` if given. Raises ProgramFailed."""
        spec: dict[str, Any] = {"expirationSeconds": 86_400}
        if pod is not None:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        code, answer = self.here.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token", body)
        if code != 201:
            raise ProgramFailed(f"no token for {account}: {code} {answer}")
        return str(answer["status"]["token"])

    def account_kubeconfig(self, account: str) -> Path:
        """Write the kubeconfig of one of our service accounts; return its path."""
        document = json.loads(self.kubeconfig().read_text())
        document["users"] = [{"name": ADMIN, "user": {"token": self.token(account)}}]
        document["contexts"][0]["context"]["namespace"] = NAMESPACE
        path = self.directory / f"{account}.kubeconfig"
        write_file(path, json.dumps(document).encode())
        return path

    def secret(self, name: str) -> Path:
        """Wait for a Secret, and write its files, as the kubelet does; return their directory."""
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
        eventually(lambda: self.here.call("GET", path)[0] == 200, f"Secret {name}", self.programs["virt-controller"])
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        for key, value in self.here.call("GET", path)[1]["data"].items():
            write_file(directory / key, base64.b64decode(value))
        return directory

    def start_controller(self) -> None:
        """Start virt-controller; do not wait for anything."""
        tls = self.directory / "kubevirt-virt-controller-tls"
        ports = [f"--{name}-port={port}" for name, port in (("health", 0), ("metrics", 0), ("webhook", self.webhook_port))]
        files = [f"--tls-cert-file={tls / 'tls.crt'}", f"--tls-private-key-file={tls / 'tls.key'}"]
        given = [f"--kubeconfig={self.directory / 'virt-controller.kubeconfig'}", "--log-level=warning", *ports, *files]
        self.start("virt-controller", [sys.executable, "-m", "controller.manager", *chart.arguments("virt-controller"), *given])

    def keep_controller(self) -> None:
        """Start virt-controller again if it ended, as the kubelet does."""
        program = self.programs.get("virt-controller")
        if program is not None and program.process.poll() is not None:
            self.restarts += 1
            self.start_controller()

    def start_api(self) -> None:
        """Start virt-api with the certificate that virt-controller issued; wait until kube-apiserver serves it."""
        tls = self.secret("kubevirt-virt-api-tls")
        given = [
            f"--bind-address={HOST}",
            f"--secure-port={self.api_port}",
            f"--kubeconfig={self.account_kubeconfig('virt-api')}",
            f"--tls-cert-file={tls / 'tls.crt'}",
            f"--tls-private-key-file={tls / 'tls.key'}",
            f"--handler-tls-directory={tls}",
            f"--etcd-servers={self.ours.endpoint}",
            f"--max-connections={CONNECTIONS}",
            "--log-level=warning",
        ]
        program = self.start("virt-api", [self.python, "-m", "apiserver.server", *chart.arguments("virt-api"), *given])
        group = "/apis/kubevirt.io/v1alpha1"
        eventually(lambda: self.here.call("GET", group)[0] == 200, f"{group} through kube-apiserver", program)

    def start_kubernetes(self) -> None:
        """Start kube-scheduler, and kube-controller-manager with ``_CONTROLLERS``."""
        binaries, config = build.ensure("kubernetes"), self.kubeconfig()
        common = [f"--kubeconfig={config}", "--leader-elect=false", f"--bind-address={HOST}"]
        controllers = [f"--controllers={_CONTROLLERS}", f"--node-monitor-grace-period={GRACE * self.renew}s"]
        for name, flags in (("kube-scheduler", []), ("kube-controller-manager", controllers)):
            self.start(name, [binaries / name, *common, f"--secure-port={free_port()}", *flags])

    def start_kubelets(self, name: str, selector: str, cidr: str) -> None:
        """Start a program that simulates the kubelets of the nodes that ``selector`` selects, with pods' addresses from ``cidr``."""
        lease = f"--node-lease-duration-seconds={HOLDS * self.renew}"
        flags = [f"--manage-nodes-with-label-selector={selector}", f"--cidr={cidr}", "--node-ip=127.0.0.1", lease]
        self.start(
            f"kubelets-{name}", [build.program("kwok"), f"--kubeconfig={self.kubeconfig()}", f"--config={_KUBELETS}", "--v=WARN", *flags]
        )

    def start_handlers(self, group: str, nodes: Sequence[Node]) -> None:
        """Start one process with virt-handler's loops of these nodes."""
        directory = self.directory / f"nodes-{group}"
        directory.mkdir()
        path = directory / "settings.json"
        Settings(str(self.kubeconfig()), str(directory), LEASES, self.renew, tuple(nodes)).write(path)
        self.start(f"handlers-{group}", [sys.executable, "-m", "benchmarks.scale.handlers", path])


@contextmanager
def cluster(directory: Path, python: str, renew: int) -> Iterator[Cluster]:
    """Run the control plane with the chart's objects, without nodes, during the block. Raises ProgramFailed, StepFailed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a node has four connections at kube-apiserver, and three at virt-api
    with ExitStack() as stack:
        here = stack.enter_context(environment(directory))
        ours = EtcdServer(directory / "virt-etcd", durable=False)
        ours.start()
        stack.callback(ours.close)
        found = Cluster(here, ours, python, renew)
        stack.callback(found.end_all)
        chart.install(here, found.api_port, found.webhook_port)
        found.account_kubeconfig("virt-controller")
        found.start_controller()
        found.secret("kubevirt-virt-controller-tls")
        found.start_api()
        found.start_kubernetes()
        yield found


def eventually(is_true: Callable[[], bool], what: str, by: Program, seconds: float = READY_SECONDS) -> None:
    """Wait until ``is_true``, which program ``by`` causes. Raises ProgramFailed if ``by`` ended or takes too long."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if by.process.poll() is not None:
            raise by.failed(f"ended before {what}")
        if time.monotonic() > deadline:
            raise by.failed(f"did not cause in {seconds:.0f} s: {what}")
        time.sleep(0.2)

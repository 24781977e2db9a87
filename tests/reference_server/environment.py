"""etcd and a bare kube-apiserver on loopback, with certificates, rights and namespaces."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.ports import free_port
from tests.reference_server import certificates, programs
from tests.reference_server.certificates import ADMIN, FRONT_PROXY, HOST, USER, USERS, Certificates
from tests.reference_server.programs import Program
from tests.testbed import build

GROUP: Final = "wardle.example.com"
NAMESPACES: Final = ("bench", "many", "create", "apply", "watch")
_QUOTA: Final = 8 << 30
_AVAILABLE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Environment:
    directory: Path
    certificates: Certificates
    etcd: Program
    etcd_url: str
    kubernetes: Program | None
    kubernetes_port: int
    others: frozenset[int]
    """Processors of all but the tested server; empty: any."""

    @property
    def kubernetes_url(self) -> str:
        return f"https://{HOST}:{self.kubernetes_port or 1}"

    def kubeconfig(self, user: str = ADMIN) -> Path:
        return self.certificates.kubeconfig(user, self.kubernetes_url, f"kubernetes-{user}")

    def call(self, method: str, path: str, body: Any = None, *, port: int = 0, user: str = ADMIN) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        context.load_cert_chain(self.certificates.certificate(user), self.certificates.key(user))
        connection = http.client.HTTPSConnection(HOST, port or self.kubernetes_port, context=context, timeout=120)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json", "Accept": "application/json"})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith(b"{") else text
        finally:
            connection.close()

    def ensure(self, path: str, body: dict[str, Any]) -> None:
        code, answer = self.call("POST", path, body)
        if code not in (http.client.CREATED, http.client.CONFLICT):
            raise programs.ProgramFailed(f"cannot create {body['kind']} {body['metadata']['name']}: {code} {answer}")

    def aggregate(self, name: str, port: int, *, version: str = "v1alpha1", group: str = GROUP) -> None:
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        path = "/api/v1/namespaces/default/services"
        self.call("DELETE", f"{path}/{name}")
        self.ensure(path, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service})
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "caBundle": _base64(self.certificates.authority),
            "service": {"name": name, "namespace": "default", "port": port},
        }
        path = "/apis/apiregistration.k8s.io/v1/apiservices"
        wanted = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"}, "spec": spec}
        self.call("DELETE", f"{path}/{version}.{group}")
        self.ensure(path, wanted)
        deadline = time.monotonic() + _AVAILABLE_SECONDS
        while self.call("GET", f"/apis/{group}/{version}")[0] != http.client.OK:
            if time.monotonic() > deadline:
                _, seen = self.call("GET", f"{path}/{version}.{group}")
                raise programs.ProgramFailed(f"{group} is not served through kube-apiserver: {seen.get('status')}")
            time.sleep(0.1)


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


@contextmanager
def environment(directory: Path, *, cluster: bool = True, others: frozenset[int] = frozenset()) -> Iterator[Environment]:
    made = certificates.make(directory / "pki")
    with ExitStack() as stack:
        port, peer = free_port(), free_port()
        url = f"http://{HOST}:{port}"
        etcd = programs.start("etcd", _etcd(directory, url, f"http://{HOST}:{peer}"), directory, cpus=others)
        stack.callback(etcd.end)
        _wait_for_etcd(etcd, port)
        kubernetes, kubernetes_port = None, 0
        if cluster:
            kubernetes_port = free_port()
            command = _kube_apiserver(made, url, kubernetes_port)
            kubernetes = programs.start("kube-apiserver", command, directory, cpus=others)
            stack.callback(kubernetes.end)
            programs.wait_until_ready(kubernetes, kubernetes_port, made, ADMIN)
        here = Environment(directory, made, etcd, url, kubernetes, kubernetes_port, others)
        if cluster:
            _prepare(here)
        yield here


def _etcd(directory: Path, url: str, peer_url: str) -> Sequence[str]:
    return [
        str(build.program("etcd")),
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        f"--quota-backend-bytes={_QUOTA}",
        "--unsafe-no-fsync",  # the comparison is about servers, not disks
        "--log-level=warn",
    ]


def _wait_for_etcd(etcd: Program, port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and etcd.process.poll() is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=2)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == http.client.OK:
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise etcd.failed("does not serve")


def _kube_apiserver(made: Certificates, etcd_url: str, port: int) -> Sequence[str]:
    return [
        str(build.ensure("kubernetes") / "kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",  # it would refuse to publish a loopback address
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--tls-cert-file={made.certificate('server')}",
        f"--tls-private-key-file={made.key('server')}",
        f"--client-ca-file={made.authority}",
        f"--service-account-key-file={made.service_account_public_key}",
        f"--service-account-signing-key-file={made.key('service-account')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",  # so that only the tested policy refuses a privileged pod
        "--disable-admission-plugins=ServiceAccount",  # no controller makes service accounts here
        f"--requestheader-client-ca-file={made.front_proxy_authority}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={made.certificate(FRONT_PROXY)}",
        f"--proxy-client-key-file={made.key(FRONT_PROXY)}",
        "--shutdown-delay-duration=0s",
    ]


def _prepare(here: Environment) -> None:
    for name in NAMESPACES:
        here.ensure("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    rbac, path = "rbac.authorization.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": [GROUP, f"ours.{GROUP}", "kubevirt.io"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["/metrics", "/readyz", "/livez", "/healthz"], "verbs": ["get"]},
    ]
    here.ensure(f"{path}/clusterroles", {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": USER}, "rules": rules})
    binding = {
        "apiVersion": rbac,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": USERS},
        ],
    }
    here.ensure(f"{path}/clusterrolebindings", binding)

"""etcd and the control plane, on the bridge's address."""

import http.client
import ssl
import time
from collections.abc import Sequence

from tests.testbed import build, layout, pki, processes, progress

NAMES = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")


def up() -> None:
    client, peer = (f"http://127.0.0.1:{port}" for port in (layout.ETCD_CLIENT_PORT, layout.ETCD_PEER_PORT))
    processes.ensure(
        "etcd",
        [
            build.program("etcd"),
            f"--data-dir={layout.state() / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # test data need not survive a crash
            "--log-level=warn",
        ],
    )
    programs = build.ensure("kubernetes")
    processes.ensure("kube-apiserver", [programs / "kube-apiserver", *_apiserver_flags(client)])
    _wait_until_ready()
    for name, flags in (("kube-controller-manager", _controller_manager_flags()), ("kube-scheduler", [])):
        kubeconfig = pki.kubeconfig_of(name)
        delegation = [f"--{use}kubeconfig={kubeconfig}" for use in ("", "authentication-", "authorization-")]
        processes.ensure(name, [programs / name, *delegation, "--bind-address=127.0.0.1", "--leader-elect=false", *flags])


def _apiserver_flags(etcd: str) -> Sequence[str]:
    pki_directory = layout.pki()
    return [
        f"--etcd-servers={etcd}",
        f"--bind-address={layout.CONTROL_PLANE_ADDRESS}",
        f"--advertise-address={layout.CONTROL_PLANE_ADDRESS}",
        f"--secure-port={layout.APISERVER_PORT}",
        f"--service-cluster-ip-range={','.join(layout.SERVICE_CIDRS)}",
        f"--tls-cert-file={pki_directory}/apiserver.crt",
        f"--tls-private-key-file={pki_directory}/apiserver.key",
        f"--client-ca-file={pki_directory}/ca.crt",
        f"--service-account-key-file={pki_directory}/service-account.pub",
        f"--service-account-signing-key-file={pki_directory}/service-account.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--requestheader-client-ca-file={pki_directory}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki_directory}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki_directory}/front-proxy-client.key",
        # Without a kube-proxy here, kube-apiserver reaches aggregated Services by their pods' addresses.
        "--enable-aggregator-routing=true",
        f"--kubelet-client-certificate={pki_directory}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki_directory}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={pki_directory}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        "--shutdown-delay-duration=0s",
    ]


def _controller_manager_flags() -> Sequence[str]:
    return [
        f"--service-account-private-key-file={layout.pki()}/service-account.key",
        f"--root-ca-file={layout.pki()}/ca.crt",
        f"--cluster-signing-cert-file={layout.pki()}/ca.crt",
        f"--cluster-signing-key-file={layout.pki()}/ca.key",
        "--use-service-account-credentials=true",
    ]


def is_ready() -> bool:
    try:
        context = ssl.create_default_context(cafile=str(layout.pki() / "ca.crt"))
        context.load_cert_chain(layout.pki() / "admin.crt", layout.pki() / "admin.key")
        connection = http.client.HTTPSConnection(layout.CONTROL_PLANE_ADDRESS, layout.APISERVER_PORT, context=context, timeout=3)
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException):
        return False
    return status == http.client.OK


def _wait_until_ready(seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not is_ready():
        for name in ("etcd", "kube-apiserver"):
            if processes.find(name) is None or time.monotonic() > deadline:
                log = processes.log_of(name)
                raise progress.StepFailed(
                    f"{name} {'did not become ready' if processes.find(name) else 'ended'}; log {log}:\n{progress.last_lines(log)}"
                )
        time.sleep(0.2)

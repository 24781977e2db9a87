"""Keys, certificates and kubeconfigs of the test cluster, made by openssl.

The aggregation layer needs two authorities: for clients and servers, and for the front proxy.
"""

import base64
import json
import os
import pathlib

from tests.testbed import layout, progress

_DAYS = "3650"


def ensure() -> None:
    """Make missing keys and certificates, and write the kubeconfigs; existing keys stay, because running components trust them."""
    layout.pki().mkdir(parents=True, exist_ok=True)
    layout.pki().chmod(0o700)
    _authority("ca", "kubernetes")
    _authority("front-proxy-ca", "front-proxy")
    names = [
        "DNS:localhost",
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
    ]
    addresses = ["127.0.0.1", layout.KUBERNETES_SERVICE_ADDRESS, layout.CONTROL_PLANE_ADDRESS]
    _certificate("apiserver", "/CN=kube-apiserver", [*names, *(f"IP:{address}" for address in addresses)])
    _certificate("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
    _certificate("front-proxy-client", "/CN=front-proxy-client", authority="front-proxy-ca")
    _service_account_key()
    users = {
        "admin": "/O=system:masters/CN=kubernetes-admin",
        "kube-controller-manager": "/CN=system:kube-controller-manager",
        "kube-scheduler": "/CN=system:kube-scheduler",
        "kube-proxy": "/CN=system:kube-proxy",
        "network-policies": "/CN=network-policies",
    }
    for name, subject in users.items():
        ensure_user(name, subject)
    for node in layout.NODES:
        _certificate(node.name, f"/O=system:nodes/CN=system:node:{node.name}", [f"DNS:{node.name}", f"IP:{node.address}"])
        _kubeconfig(node.name)
    _write(layout.kubeconfig(), kubeconfig_of("admin").read_text())


def ensure_user(name: str, subject: str) -> None:
    """Write a user's kubeconfig; make the certificate if missing, with ``subject`` such as ``/CN=multus``. Raises StepFailed."""
    _certificate(name, subject)
    _kubeconfig(name)


def kubeconfig_of(user: str) -> pathlib.Path:
    return layout.pki() / f"{user}.kubeconfig"


def _write(path: pathlib.Path, content: str) -> None:
    new = path.with_name(path.name + ".new")
    new.touch(mode=0o600)
    new.write_text(content)
    new.replace(path)


def _file(name: str) -> pathlib.Path:
    return layout.pki() / name


def _key(name: str) -> pathlib.Path:
    path = _file(f"{name}.key")
    if not path.exists():
        key = progress.output_of(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
        _write(path, key)
    return path


def _authority(name: str, common_name: str) -> None:
    certificate = _file(f"{name}.crt")
    if certificate.exists():
        return
    pem = progress.output_of(
        [
            "openssl",
            "req",
            "-x509",
            "-new",
            "-key",
            _key(name),
            "-days",
            _DAYS,
            "-subj",
            f"/CN={common_name}",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ]
    )
    _write(certificate, pem)


def _certificate(name: str, subject: str, alternative_names: list[str] | None = None, *, authority: str = "ca") -> None:
    certificate = _file(f"{name}.crt")
    if certificate.exists():
        return
    request = _file(f"{name}.csr")
    extensions = _file(f"{name}.ext")
    extensions.write_text(
        "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
        + (f"subjectAltName={','.join(alternative_names)}\n" if alternative_names else "")
    )
    _write(request, progress.output_of(["openssl", "req", "-new", "-key", _key(name), "-subj", subject]))
    arguments: list[str | os.PathLike[str]] = [
        "openssl",
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        _file(f"{authority}.crt"),
        "-CAkey",
        _file(f"{authority}.key"),
    ]
    pem = progress.output_of([*arguments, "-CAcreateserial", "-days", _DAYS, "-extfile", extensions])
    _write(certificate, pem)
    request.unlink()
    extensions.unlink()


def _service_account_key() -> None:
    public = _file("service-account.pub")
    if not public.exists():
        _write(public, progress.output_of(["openssl", "pkey", "-in", _key("service-account"), "-pubout"]))


def _kubeconfig(user: str) -> None:
    def embedded(file: str) -> str:
        return base64.b64encode(_file(file).read_bytes()).decode()

    server = f"https://{layout.CONTROL_PLANE_ADDRESS}:{layout.APISERVER_PORT}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubevirt-test", "cluster": {"server": server, "certificate-authority-data": embedded("ca.crt")}}],
        "users": [{"name": user, "user": {"client-certificate-data": embedded(f"{user}.crt"), "client-key-data": embedded(f"{user}.key")}}],
        "contexts": [{"name": "kubevirt-test", "context": {"cluster": "kubevirt-test", "user": user}}],
        "current-context": "kubevirt-test",
    }
    _write(kubeconfig_of(user), json.dumps(content, indent=1))

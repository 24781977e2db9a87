from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import http.server
import io
import ipaddress
import json
import re
import ssl
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

STOPS = 1 << 18
"""A failing server closes the connection after these bytes."""


@dataclass
class Files:
    content: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    cuts: int = 0
    ranges: bool = True
    tag: str = '"one"'
    encoding: str = ""
    skew: tuple[int, int] = (0, 0)
    """Errors in the first byte and the total length of a resumed answer."""
    surplus: bytes = b""
    length: bool = True
    chunked: bool = False
    hang: threading.Event | None = None
    """An answer stops in its middle until it is set."""
    authorization: str = ""
    challenge: str = ""
    token: tuple[str, str] = ("", "")
    """This path serves this content for this Authorization."""
    verify: Callable[[str, dict[str, str]], bool] | None = None
    """Whether a request may read, by path and lower-case headers; others get 403."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    files: Files
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class' name
        del format, args

    def do_GET(self) -> None:
        files = self.files
        files.asked.append((self.path, dict(self.headers)))
        path = self.path.partition("?")[0]
        self.close_connection = True
        if files.statuses:
            return self.answer(files.statuses.pop(0))
        if path == files.token[0] and self.headers.get("Authorization") == files.token[1]:
            return self.give(files.content[path])
        if files.authorization and self.headers.get("Authorization") != files.authorization:
            return self.answer(401, **({"WWW-Authenticate": files.challenge} if files.challenge else {}))
        if files.verify is not None and not files.verify(self.path, {name.lower(): value for name, value in self.headers.items()}):
            return self.answer(403)
        if path in files.redirects:
            return self.answer(302, Location=files.redirects[path])
        if path not in files.content:
            return self.answer(404)
        return self.give(files.content[path])

    def answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def give(self, data: bytes) -> None:
        files, start, total = self.files, 0, len(data)
        asked = self.headers.get("Range")
        if asked and files.ranges and self.headers.get("If-Range") == files.tag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if files.tag:
            self.send_header("ETag", files.tag)
        if files.encoding:
            self.send_header("Content-Encoding", files.encoding)
        if start:
            self.send_header("Content-Range", f"bytes {start + files.skew[0]}-{total - 1}/{total + files.skew[1]}")
        if files.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif files.length:
            self.send_header("Content-Length", str(total - start + (len(files.surplus) if start else 0)))
        self.end_headers()
        data = data[start:] + (files.surplus if start else b"")
        if files.cuts:
            files.cuts -= 1
            self.body(data[:STOPS], whole=False)
        elif files.hang is not None:
            self.body(data[:STOPS], whole=False)
            self.wfile.flush()
            files.hang.wait(60)
        else:
            self.body(data, whole=True)

    def body(self, data: bytes, *, whole: bool) -> None:
        with contextlib.suppress(OSError):
            if self.files.chunked:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n" + (b"0\r\n\r\n" if whole else b""))
            else:
                self.wfile.write(data)


@contextlib.contextmanager
def serving(files: Files, certificate: Path | None = None) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"files": files}))
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


def authority_of(pair: Path) -> bytes:
    mark = b"-----BEGIN CERTIFICATE"
    return mark + pair.read_bytes().partition(mark)[2]


def a_store(secret: str, region: str, host: str) -> Callable[[str, dict[str, str]], bool]:

    def verify(path: str, headers: dict[str, str]) -> bool:
        if "authorization" not in headers:
            return False
        fields = dict(re.findall(r"(\w+)=([^,]+)", headers["authorization"]))
        date = headers["x-amz-date"]
        names = fields["SignedHeaders"].split(";")
        assert {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names)
        assert headers["host"] == host
        canonical = ["GET", path, "", *(f"{name}:{headers[name]}" for name in names), "", ";".join(names), headers["x-amz-content-sha256"]]
        scope = f"{date[:8]}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(chr(10).join(canonical).encode()).hexdigest()}"
        key = ("AWS4" + secret).encode()
        for each in (date[:8], region, "s3", "aws4_request", text):
            key = hmac.digest(key, each.encode(), "sha256")
        return bool(fields["Signature"] == key.hex() and fields["Credential"] == f"id/{scope}")

    return verify


def a_layer(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def a_registry(repository: str, *layers: bytes, tag: str = "1") -> Files:
    """Return a registry's Files, an image for two platforms; they require a token for ``user`` with ``pass``."""
    base = f"/v2/{repository}"
    content = {f"{base}/blobs/{digest_of(each)}": each for each in layers}
    manifest = json.dumps({"schemaVersion": 2, "layers": [{"digest": digest_of(each), "size": len(each)} for each in layers]}).encode()
    other = {"digest": digest_of(b""), "platform": {"os": "linux", "architecture": "arm64"}}
    own = {"digest": digest_of(manifest), "platform": {"os": "linux", "architecture": "amd64"}}
    content |= {f"{base}/manifests/{digest_of(manifest)}": manifest, "/token": b'{"token": "t0ken"}'}
    content[f"{base}/manifests/{tag}"] = json.dumps({"schemaVersion": 2, "manifests": [other, own]}).encode()
    return Files(content, authorization="Bearer t0ken", token=("/token", "Basic dXNlcjpwYXNz"))


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

"""Read one file of an image in a container registry, by OCI's distribution API.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md; tokens as in
https://distribution.github.io/distribution/spec/auth/token/. The disk is a file below ``disk/`` in a layer. Every digest is verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from importer import addresses, compression, credentials, layers
from importer.addresses import Address
from importer.failures import EndUnknown, ImportFailed
from importer.transfer import Body, Transfer, Unauthorized

MAX_DOCUMENT: Final = 4 << 20
"""Bytes of a manifest or token answer."""
MAX_LAYERS: Final = 128
MAX_MEMBERS: Final = 100_000
PLATFORM: Final = ("linux", "amd64")
_INDEXES: Final = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS: Final = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPT: Final = ", ".join((*_INDEXES, *_MANIFESTS))
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_TOKEN: Final = re.compile(r"[!-~]{1,16384}")
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed image reference."""

    host: str
    repository: str
    version: str
    """A tag or a digest."""

    @property
    def base(self) -> str:
        """Return the repository's URL."""
        return f"https://{self.host}/v2/{self.repository}"


def parse(text: str) -> Reference:
    """Parse an image reference; without host, Docker Hub's; without version, ``latest``."""
    name, _, digest = text.partition("@")
    host, slash, rest = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = "registry-1.docker.io", name if slash else f"library/{name}"
    elif host == "docker.io":
        host, rest = "registry-1.docker.io", rest if "/" in rest else f"library/{rest}"
    repository, _, tag = rest.partition(":")
    return Reference(host, repository, digest or tag or "latest")


def pieces(
    reference: Reference, secret: Path | None, authorities: Path | None, downloaded: Callable[[int, int | None], None]
) -> Iterator[bytes]:
    """Yield the bytes of the disk in a container image; ``downloaded`` gets a layer's bytes so far and in total (None: unknown).

    Raises ImportFailed if the registry refuses, or, perhaps only at the end, because there is not exactly one disk.
    """
    session = _Session(reference, secret, authorities)
    manifest = session.manifest(reference.version)
    if manifest.get("manifests"):
        manifest = session.manifest(_of_platform(manifest["manifests"]))
    given = manifest.get("layers") or ()
    if not isinstance(given, list) or len(given) > MAX_LAYERS or any(not isinstance(each, dict) for each in given):
        raise ImportFailed(f"{reference.host} returned an invalid manifest")
    tree, found = layers.Layers(), ""
    for layer in reversed(given):
        for name, data in session.disks(str(layer.get("digest")), tree, downloaded):
            if found:
                raise ImportFailed(
                    f"the image {reference.repository} has several files below {layers.DIRECTORY}/: {found} and {name[:256]}"
                )
            found = name[:256]
            yield from data
        tree.end_layer()
    if not found:
        raise ImportFailed(f"the image {reference.repository} has no file below {layers.DIRECTORY}/")


def _of_platform(manifests: Any) -> str:  # noqa: ANN401  # untrusted JSON
    for each in manifests if isinstance(manifests, list) else ():
        platform = each.get("platform") or {} if isinstance(each, dict) else {}
        if (platform.get("os"), platform.get("architecture")) == PLATFORM:
            return str(each.get("digest"))
    raise ImportFailed(f"the image is for other platforms than {'/'.join(PLATFORM)}")


_MAX_EMPTY_READS: Final = 2
"""At the end of an archive without end marker."""


class _Stream:
    def __init__(self, given: Iterator[bytes]) -> None:
        self._pieces = given
        self._left = b""
        self._empty_reads = 0

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer at the end; ReadError if repeatedly called after it."""
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        found, self._left = self._left[:size], self._left[size:]
        self._empty_reads += not found
        if self._empty_reads > _MAX_EMPTY_READS:
            raise tarfile.ReadError("it ends before the file that it announces")
        return found

    def drain(self) -> None:
        """Read to the end, which verifies the digest."""
        for _ in self._pieces:
            continue


class _Session:
    def __init__(self, reference: Reference, secret: Path | None, authorities: Path | None) -> None:
        self._base = reference.base
        self._origin = addresses.parse(self._base).origin
        self._secret = secret
        self._host = reference.host
        self._authorization = ""
        self._authorities = authorities
        self._transfer = Transfer(self._headers, authorities)

    def manifest(self, version: str) -> dict[str, Any]:
        """Return the manifest or index with this tag or digest. Raises ImportFailed."""
        url = f"{self._base}/manifests/{quote(version, safe=':')}"
        try:
            data = _read(self._transfer.get(url, {"Accept": _ACCEPT}))
        except Unauthorized as error:
            self._authorize(error)
            data = _read(self._transfer.get(url, {"Accept": _ACCEPT}))
        if version.startswith("sha256:") and hashlib.sha256(data).hexdigest() != version.removeprefix("sha256:"):
            raise ImportFailed(f"{self._host} returned another manifest than {version}")
        return _document(data, self._host)

    def disks(
        self, digest: str, tree: layers.Layers, downloaded: Callable[[int, int | None], None]
    ) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the name and the bytes, in pieces, of a layer's disks that no upper layer hides; read the layer to its end.

        Layers come from the top. Read each disk before taking the next. Call ``tree.end_layer`` afterwards: ``tree`` then also knows what
        this layer hides. ``downloaded`` gets the bytes so far and in total (None: unknown). Raises ImportFailed, also for a wrong digest.
        """
        if not _DIGEST.fullmatch(digest):
            raise ImportFailed(f"{self._host} returned a manifest with a layer without digest")
        raw = _verified(self._transfer.pieces(f"{self._base}/blobs/{digest}", downloaded), digest)
        head = next(raw, b"")
        stream = _Stream(iter(compression.decompressed(itertools.chain((head,), raw), head)))
        try:
            layer = tarfile.open(fileobj=stream, mode="r|")  # type: ignore[call-overload]  # noqa: SIM115  # it calls read alone; read later
            for _, member in zip(range(MAX_MEMBERS), layer, strict=False):
                if tree.is_disk(member.name, is_file=member.isreg(), is_directory=member.isdir()):
                    yield member.name, _file(layer, member)
        except (tarfile.TarError, ValueError, RecursionError) as error:  # the latter two: extended headers
            raise ImportFailed(f"the layer {digest} is not an archive: {error}") from error
        stream.drain()

    def _headers(self, address: Address) -> Mapping[str, str]:
        return {"Authorization": self._authorization} if self._authorization and address.origin == self._origin else {}

    def _authorize(self, refused: Unauthorized) -> None:
        if refused.origin != self._origin:
            # another host's token server would get the login
            raise ImportFailed(
                f"{self._host} redirects to a server that requests credentials, which are only sent to {self._host}"
            ) from refused
        login = credentials.of_registry(self._secret, self._host)
        kind, _, rest = refused.challenge.partition(" ")
        if kind.lower() == "basic" and login:
            self._authorization = login
            return
        wanted = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or not wanted.get("realm", "").startswith("https://"):
            raise refused
        query = urlencode({name: wanted[name] for name in ("service", "scope") if name in wanted})
        url = f"{wanted['realm']}{'&' if '?' in wanted['realm'] else '?'}{query}"
        realm = addresses.parse(wanted["realm"])
        asking = Transfer(lambda address: {"Authorization": login} if login and address.origin == realm.origin else {}, self._authorities)
        answer = _document(_read(asking.get(url)), self._host)
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ImportFailed(f"{realm} returned no token")
        self._authorization = f"Bearer {token}"


def _file(layer: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    if member.issparse():
        raise ImportFailed(f"{member.name[:256]} is a GNU tar sparse file: store it in the layer as a regular file")
    try:
        opened = layer.extractfile(member)
        while opened is not None and (piece := opened.read(compression.PIECE)):
            yield piece
    except tarfile.TarError as error:
        raise ImportFailed(f"the archive is damaged: {error}") from error


def _verified(given: Iterator[bytes], digest: str) -> Iterator[bytes]:
    found = hashlib.sha256()
    with contextlib.suppress(EndUnknown):  # the digest proves completeness
        for piece in given:
            found.update(piece)
            yield piece
    if f"sha256:{found.hexdigest()}" != digest:
        raise ImportFailed(f"the registry returned another layer than {digest}")


def _read(body: Body) -> bytes:
    try:
        data = body.response.read(MAX_DOCUMENT + 1)
    except (OSError, http.client.HTTPException):
        data = b""
    finally:
        body.connection.close()
    if not data or len(data) > MAX_DOCUMENT:
        raise ImportFailed(f"{body.address} returned no data, or too much")
    return data


def _document(data: bytes, host: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ImportFailed(f"{host} returned an invalid manifest")
    return found

"""HTTP downloads that resume after a break while the server confirms the same file."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certs import contexts
from importer import addresses
from importer.addresses import Address
from importer.failures import EndUnknown, ImportFailed

CHUNK: Final = 256 << 10
SECONDS: Final = 60.0
"""For a connection, and for the next bytes."""
MAX_REDIRECTS: Final = 5
MAX_RESUMES: Final = 16
"""Successive breaks with less than a mebibyte between them."""
PROGRESS: Final = 1 << 20

_RANGE: Final = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19})")
_ENCODINGS: Final = ("", "identity", "gzip", "x-gzip", "zstd")
"""Accepted unrequested encodings; the last three are handled as compressed images."""
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_BROKEN: Final = (OSError, http.client.HTTPException)
"""Errors that end a connection; TimeoutError and TLS errors are OSError."""

Headers = Callable[[Address], Mapping[str, str]]
"""Returns the headers with credentials for an address."""


@dataclass(slots=True)
class Body:
    """A response with unread content; its user closes ``connection``."""

    address: Address
    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    total: int | None
    """Bytes of the whole file."""
    validator: str
    """Strong entity tag; empty if missing."""


class Unauthorized(ImportFailed):
    """The server requires authentication."""

    def __init__(self, message: str, challenge: str, origin: tuple[str, str, int]) -> None:
        super().__init__(message)
        self.challenge = challenge
        self.origin = origin


class Transfer:
    """Downloads of one import."""

    def __init__(self, headers: Headers, authorities: Path | None = None, seconds: float = SECONDS) -> None:
        """Trust ``authorities`` (None: the system's), send each address its ``headers``; ``seconds``: patience with an unreachable server.

        Raises ImportFailed if the authorities are unreadable.
        """
        self._headers = headers
        self._seconds = seconds
        try:
            self._tls = contexts.trusting(file=str(authorities) if authorities else None)
        except (OSError, ValueError) as error:
            raise ImportFailed("the certificates of caConfigMapRef are not valid PEM") from error

    def get(self, url: str, extra: Mapping[str, str] | None = None) -> Body:
        """Return the unread response, after redirects; ``extra``: further headers. Raises ImportFailed; Unauthorized for status 401."""
        address = addresses.parse(url)
        for _ in range(MAX_REDIRECTS + 1):
            connection, response = self._request(address, {**self._headers(address), **(extra or {})})
            if response.status not in _REDIRECTS:
                return _checked(address, connection, response)
            location = response.headers.get("Location")
            connection.close()
            if not location:
                raise ImportFailed(f"{address} returned {response.status} without a Location")
            address = addresses.redirected(address, location)
        raise ImportFailed(f"{address}: more than {MAX_REDIRECTS} redirects")

    def pieces(self, url: str, downloaded: Callable[[int, int | None], None]) -> Iterator[bytes]:
        """Yield a file's bytes, also across breaks; ``downloaded`` gets the bytes so far and in total (None: unknown).

        Raises:
            ImportFailed: it fails or is incomplete.
            EndUnknown: it has no length, and the connection ended.
        """
        body = self.get(url)
        total, validator = body.total, body.validator
        done = marked = broken = 0
        while True:
            downloaded(done, total)
            try:
                data = body.response.read(CHUNK)
            except _BROKEN as error:
                data, why = b"", _words(error)
            else:
                why = "the connection ended"
            if data:
                done += len(data)
                if total is not None and done > total:
                    raise ImportFailed(f"{body.address} sent more data than announced")
                yield data
                continue
            body.connection.close()
            if total is None and why == "the connection ended":
                if _is_whole(body.response):
                    return
                raise EndUnknown(
                    f"{body.address}: the server did not announce the size and closed the connection after {done} bytes: set "
                    "import.checksum to verify that the file is complete"
                )
            if done == total:
                return
            marked, broken = (done, 1) if done - marked >= PROGRESS else (marked, broken + 1)
            if total is None or not validator or broken > MAX_RESUMES:
                raise ImportFailed(f"{body.address}: {why} after {done} of {'unknown' if total is None else total} bytes")
            body = self._resumed(url, done, total, validator)

    def _resumed(self, url: str, done: int, total: int, validator: str) -> Body:
        body = self.get(url, {"Range": f"bytes={done}-", "If-Range": validator})
        found = _RANGE.fullmatch(body.response.headers.get("Content-Range") or "")
        if body.response.status != 206 or found is None or int(found[1]) != done or int(found[2]) != total:
            body.connection.close()
            raise ImportFailed(f"{body.address}: the connection ended after {done} bytes, and the server does not support resuming")
        return body

    def _request(self, address: Address, headers: Mapping[str, str]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            connection = http.client.HTTPSConnection(address.host, address.port, timeout=self._seconds, context=self._tls)
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=self._seconds)
        try:
            connection.request("GET", address.target, headers={"Accept-Encoding": "identity", "User-Agent": "virt-importer", **headers})
            return connection, connection.getresponse()
        except _BROKEN as error:
            connection.close()
            raise ImportFailed(f"{address}: {_words(error)}") from None
        except ValueError:  # characters that headers cannot have
            connection.close()
            raise ImportFailed(f"{address}: the credentials contain characters that HTTP does not allow") from None


def _checked(address: Address, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Body:
    if response.status not in (200, 206):
        connection.close()
        if response.status == 401:
            raise Unauthorized(f"{address} answers 401 {_HINTS[401]}", response.headers.get("WWW-Authenticate") or "", address.origin)
        raise ImportFailed(f"{address} returned {response.status} {_HINTS.get(response.status, '')}".rstrip())
    encoding = (response.headers.get("Content-Encoding") or "identity").strip().lower()
    if encoding not in _ENCODINGS:
        connection.close()
        raise ImportFailed(f"{address} returned Content-Encoding: {encoding[:32]}, which is not supported")
    tag = response.headers.get("ETag") or ""
    validator = tag if tag.startswith('"') and tag.isascii() and len(tag) < 256 else ""  # a weak one does not identify bytes
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None
    if response.status == 206 or total is None or "chunked" in (response.headers.get("Transfer-Encoding") or "").lower():
        return Body(address, response, connection, None, validator)
    return Body(address, response, connection, total, validator)


_HINTS: Final = {
    401: "(set secretRef to a Secret with credentials)",
    403: "(these credentials may not read it)",
    404: "(file not found)",
}


def _is_whole(response: http.client.HTTPResponse) -> bool:
    return "chunked" in (response.headers.get("Transfer-Encoding") or "").lower()


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__)[:128]
    return type(error).__name__

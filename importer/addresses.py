"""URLs of images, their redirects, and their form in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from importer.failures import ImportFailed

MAX_SHOWN: Final = 256
"""Characters."""
_KEPT: Final = "".join(chr(each) for each in range(0x80) if each != ord(" "))
"""Unescaped characters of a redirect; control characters are refused."""
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, as in the request line."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port, the scope of credentials."""
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        """Return a form for messages, without the query, which may be a signature."""
        return f"{self.scheme}://{self.host_header}{self.target.partition('?')[0]}"[:MAX_SHOWN]

    @property
    def host_header(self) -> str:
        """Return the value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def full(self) -> str:
        """Return the URL with its query, which ``str`` omits."""
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{self.target}"


def parse(url: str) -> Address:
    """Parse a URL. Raises ImportFailed if invalid, not http or https, or with credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ImportFailed("the URL is not valid") from error
    if parts.scheme not in PORTS:
        raise ImportFailed("the URL must begin with http:// or https://")
    if parts.username is not None:  # empty if there is only a password
        raise ImportFailed("the URL contains credentials; use secretRef")
    if any(not "!" <= each <= "~" for each in url):
        raise ImportFailed("the URL contains invalid characters")
    if not parts.hostname:
        raise ImportFailed("the URL has no host")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, parts.hostname, port or PORTS[parts.scheme], target)


def redirected(address: Address, location: str) -> Address:
    """Return a redirect's target, with spaces and non-ASCII bytes escaped as in browsers.

    Raises ImportFailed for an invalid one, or http after https.
    """
    try:
        found = parse(urljoin(address.full, quote(location.strip(" \t").encode("latin-1", "replace"), safe=_KEPT)))
    except ImportFailed as error:
        raise ImportFailed(f"{address} redirects to an address that is not allowed: {error}") from None
    except ValueError:
        raise ImportFailed(f"{address} redirects to an invalid URL") from None
    if address.scheme == "https" and found.scheme != "https":
        raise ImportFailed(f"{address} redirects to {found}, which is not encrypted")
    return found
